"""Runs a fault in a process of its own and says what came of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tests.ingest.page_faults.frame import (
    ENDED,
    FAULTS,
    HANGS,
    LAUNCHED,
    RIGHT,
    WRONG,
    WRONG_EXIT,
    run,
)

HANG_S = 3.0
"""A kernel here takes microseconds. One that still runs so long after its launch hangs."""
START_S = 40.0
HANGING = 6
"""Kernels that hang share the GPU by turns with all others: few at a time."""


@dataclass(frozen=True)
class Outcome:
    name: str
    broken: bool
    outcome: str
    """`hangs`, `wrong`, `right`, `fails`, or `unlaunched` if it did not come to the launch in time."""
    seconds: float
    ended_by: str
    """The first signal that ended a process that hung, of SIGINT, SIGTERM and SIGKILL."""
    numbers: dict[str, object]
    stdout: str
    stderr: str
    """Of both the last 1,500 characters."""


def honest_runs(names: Iterable[str] = FAULTS) -> list[str]:
    """One fault for each kernel of those named, to be run without its mistake."""
    return list({FAULTS[name].honest: name for name in names}.values())


def server() -> ForkServerContext:
    """Starts processes that have torch and the DSL loaded already, and know nothing of the GPU."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "cutlass.torch", "tests.ingest.page_faults.kernels"])
    return context


def observe(context: ForkServerContext, name: str, broken: bool) -> Outcome:
    """Run it, and end it if it hangs."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        out.touch()
        process = context.Process(target=_run, args=(name, broken, out, err))
        process.start()
        hangs = ended_by = ""
        steps, deadline = 0, began + START_S
        while process.is_alive() and time.monotonic() < deadline:
            process.join(0.05)
            written = out.read_text().splitlines()
            launched, ended = written.count(LAUNCHED), written.count(ENDED)
            if launched + ended > steps:  # the next step has a limit of its own
                steps = launched + ended
                deadline = time.monotonic() + (HANG_S if launched > ended else START_S)
        if process.is_alive():
            hangs, ended_by = HANGS if launched > ended else "unlaunched", _end(process)
        process.join()
        stdout, stderr = out.read_text(errors="replace"), err.read_text(errors="replace")
    outcome = hangs or {0: RIGHT, WRONG_EXIT: WRONG}.get(process.exitcode or 0, "fails")
    numbers = next((json.loads(line) for line in stdout.splitlines() if line.startswith("{")), {})
    seconds = round(time.monotonic() - began, 1)
    return Outcome(name, broken, outcome, seconds, ended_by, numbers, stdout[-1500:], stderr[-1500:])


def _run(name: str, broken: bool, out: Path, err: Path) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    run(name, broken)


def _end(process: ForkServerProcess) -> str:
    """End a process that hangs, the gentle way first; the signal that did it."""
    assert process.pid is not None
    for ending, patience_s in ((signal.SIGINT, 0.5), (signal.SIGTERM, 3)):
        os.kill(process.pid, ending)
        process.join(patience_s)
        if not process.is_alive():
            return ending.name
    process.kill()
    return signal.SIGKILL.name
