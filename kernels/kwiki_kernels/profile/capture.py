"""Run a candidate under a profiler, in a process group of its own, and give back what that wrote.

It has the GPU to itself meanwhile. It is not confined: a profiler must reach into it.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from kwiki_kernels.errors import ProfileError
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.keeper import child_environ
from kwiki_kernels.lease import gpu_lease, quiet
from kwiki_kernels.messages import Request
from kwiki_kernels.profile import iket, ncu
from kwiki_kernels.task import parse_task

SAID_CHARS = 300
COUNTED_AFTER_CALLS = 2
"""ncu counts one call between start and stop; those before it cost nothing."""
TRACED_AFTER_CALLS = 0
"""run-iket writes down every call, and traces without the first lay within half a percent of it."""
MOST_TRACE_BYTES = 256_000_000
"""More takes longer to read than an answer is worth, and says nothing that less does not."""


def capture_counters(job: Job, candidate: Candidate) -> str:
    """The raw CSV page of ncu for one call of `candidate` on the job's first workload.

    Raises:
        ProfileError: ncu is missing, the kernel failed under it, or it took longer than the job's limit.
    """
    with tempfile.TemporaryDirectory(prefix="kwiki-ncu-") as name:
        return _run(
            ncu.command(_target(job, candidate, Path(name), COUNTED_AFTER_CALLS)), job, candidate, Path(name)
        )


def capture_trace(
    job: Job, candidate: Candidate, into: Path, cluster: tuple[int, int, int] = (0, 0, 0)
) -> str:
    """The trace JSON of run-iket for one `cluster` in one call of `candidate` on the job's first workload.

    It is put into the folder `into`, and the Perfetto trace beside it, both gzipped.

    Raises:
        ProfileError: as `capture_counters`, or run-iket left no trace, or one of too many ranges.
    """
    with tempfile.TemporaryDirectory(prefix="kwiki-iket-") as name:
        folder, traces = Path(name), Path(name) / "traces"
        target = _target(job, candidate, folder, TRACED_AFTER_CALLS)
        said = _run(iket.command(target, traces, cluster), job, candidate, folder)
        written = sorted(traces.glob("iket_pid_*.trace.json"))
        if not written:
            raise ProfileError(f"run-iket left no trace: {said.strip()[-SAID_CHARS:] or 'it said nothing'}")
        if (size := written[0].stat().st_size) > MOST_TRACE_BYTES:
            raise ProfileError(
                f"the trace has {size // 1_000_000} MB, more than can be read soon: put ranges around tiles "
                "rather than single steps, or take a smaller workload"
            )
        for path in (*written, *traces.glob("*.pftrace")):
            (into / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), compresslevel=6))
        return written[0].read_text(encoding="utf-8")


def _target(job: Job, candidate: Candidate, folder: Path, warm_up_calls: int) -> list[str]:
    (folder / "dump").mkdir()
    path = folder / "request.json"
    path.write_text(_request(job, candidate).model_dump_json(), encoding="utf-8")
    return [sys.executable, "-m", "kwiki_kernels.profile.target", str(path), str(warm_up_calls)]


def _request(job: Job, candidate: Candidate) -> Request:
    bare = job.model_copy(update={"candidates": ()})
    task = parse_task(job.task_files, {}, origin=f"job {job.id}")
    return Request(job=bare, task=task, candidate=candidate, baseline=False, measure=True, token="")


def _run(command: list[str], job: Job, candidate: Candidate, folder: Path) -> str:
    """Standard output, with standard error in the message of a failure."""
    environ = child_environ(folder, _request(job, candidate)) | {"LC_ALL": "C"}
    limit_s = job.protocol.judge_timeout_s
    never = threading.Event()
    try:
        with gpu_lease(never), quiet(never), subprocess.Popen(
            command, cwd=folder, env=environ, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=limit_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    except FileNotFoundError as error:
        raise ProfileError(f"{command[0]} is not on PATH: install it, or profile without it") from error
    except subprocess.TimeoutExpired as error:
        raise ProfileError(
            f"{command[0]} did not finish within {limit_s:g} s: take a smaller workload"
        ) from error
    if process.returncode and not output.strip():
        said = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise ProfileError(f"{command[0]} failed: {said[0][:SAID_CHARS]}")
    return output
