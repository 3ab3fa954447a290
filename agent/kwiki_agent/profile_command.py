"""Gather what the profilers say about one kernel, and draw it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

from kwiki_kernels.errors import ProfileError
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Job
from kwiki_kernels.profile import iket, ncu
from kwiki_kernels.profile.capture import capture_counters, capture_trace
from kwiki_kernels.task import Task

GZIP_MAGIC = b"\x1f\x8b"
Gathered = tuple[ncu.KernelCounters | None, iket.Pipeline | None, list[str], list[Path]]


def profile(
    job: Job,
    verdict: Evaluation,
    task: Task,
    *,
    counters_file: Path | None,
    trace_file: Path | None,
    capture: bool,
    folder: Path,
    say: Callable[[str], None],
) -> Gathered:
    """Counters, time per role, what is missing and why, and the pictures drawn.

    Captures are read from the files given, else made where `capture` allows and kept in `folder`. One
    that cannot be made is a note, not an error: the rest still says something.

    Raises:
        ProfileError: a file given cannot be read.
        OSError: the folder cannot be written.
    """
    notes: list[str] = []
    if capture or trace_file:
        folder.mkdir(parents=True, exist_ok=True)
    candidate = job.candidates[0]

    counters_text = _read(counters_file) if counters_file else None
    trace_text = _read(trace_file) if trace_file else None
    counters = ncu.dominant(ncu.read_csv(counters_text)) if counters_text is not None else None
    launch = iket.longest(iket.read_trace(trace_text)) if trace_text is not None else None
    if capture and counters is None:
        say("counting with ncu")
        try:
            text = capture_counters(job, candidate)
            (folder / "ncu.csv").write_text(text, encoding="utf-8")
            counters = ncu.dominant(ncu.read_csv(text))
        except ProfileError as error:
            notes.append(f"no counters: {error}")
    if capture and launch is None and "iket." in candidate.source:
        say("tracing with run-iket")
        try:
            cluster = counters.middle_cluster if counters else (0, 0, 0)
            launch = iket.longest(iket.read_trace(capture_trace(job, candidate, folder, cluster)))
        except ProfileError as error:
            notes.append(f"no trace: {error}")
    pipeline = iket.pipeline(launch) if launch else None
    return counters, pipeline, notes, _draw(verdict, task, launch, folder)


def _read(capture: Path) -> str:
    """A capture as text, gzipped or not."""
    try:
        content = capture.read_bytes()
        return (gzip.decompress(content) if content[:2] == GZIP_MAGIC else content).decode("utf-8")
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise ProfileError(f"the capture {capture} is cut off: copy it again") from None
    except OSError as error:
        raise ProfileError(f"the capture {capture} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ProfileError(
            f"the capture {capture} is not a text file: give what the profiler wrote"
        ) from None


def _draw(verdict: Evaluation, task: Task, launch: iket.Launch | None, folder: Path) -> list[Path]:
    timed = [result for result in verdict.results if result.timing is not None]
    if not timed and launch is None:
        return []
    from kwiki_agent.plots import plot_latencies, plot_timeline, plot_verdict_roofline

    pictures: list[Path] = []
    if launch is not None:
        pictures += plot_timeline(launch, path=folder / "timeline")
    if timed:
        rounds = {result.uuid: result.timing.device_us for result in timed if result.timing}
        pictures += plot_latencies(rounds, path=folder / "latency")
    pictures += plot_verdict_roofline(verdict, task, path=folder / "roofline")
    return pictures
