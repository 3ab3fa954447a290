"""Runs a fault in a process of its own and says what came of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

from tests.ingest.page_faults.frame import FAULTS, HANGS, LAUNCHED, RIGHT, WRONG, WRONG_EXIT

HANG_S = 3.0
"""A kernel here takes microseconds. One that still runs so long after its launch hangs."""
COMPILE_S = 100.0
HANGING = 8
"""Kernels that hang share the GPU by turns with all others: few at a time. Most of a process is its start."""


@dataclass(frozen=True)
class Outcome:
    name: str
    broken: bool
    outcome: str
    """`hangs`, `wrong`, `right`, `fails`, or `unlaunched` if it did not come to the launch in time."""
    where: str
    """What had returned by then: nothing (`call`) or the call (`after the call`)."""
    seconds: float
    ended_by: str
    """The first signal that ended a process that hung, of SIGINT, SIGTERM and SIGKILL."""
    numbers: dict[str, object]
    stdout: str
    stderr: str
    """Of both the last 1,500 characters."""


def honest_runs() -> list[str]:
    """One fault for each kernel, to be run without its mistake."""
    return list({fault.honest: name for name, fault in FAULTS.items()}.values())


def observe(name: str, broken: bool) -> Outcome:
    """Run it, and kill it if it hangs."""
    command = [sys.executable, "-m", "tests.ingest.page_faults", name, "broken" if broken else "honest"]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        lines: list[str] = []
        launched = threading.Event()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.strip())
                if lines[-1] == LAUNCHED:
                    launched.set()
            launched.set()  # also if it ended before

        threading.Thread(target=read, daemon=True).start()
        on_time, ended_by = launched.wait(COMPILE_S), ""
        try:
            code: int | None = process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            code, ended_by = None, _end(process)
        seconds = time.monotonic() - began
        errors.seek(0)
        stderr = errors.read()[-1500:]
    if code is None:
        outcome = HANGS if on_time else "unlaunched"
    else:
        outcome = {0: RIGHT, WRONG_EXIT: WRONG}.get(code, "fails")
    numbers = next((json.loads(line) for line in lines if line.startswith("{")), {})
    where = "after the call" if LAUNCHED in lines else "call"
    stdout = "\n".join(lines)[-1500:]
    return Outcome(name, broken, outcome, where, round(seconds, 1), ended_by, numbers, stdout, stderr)


def _end(process: subprocess.Popen[str]) -> str:
    """End a process that hangs, the gentle way first; the signal that did it."""
    for ending, patience_s in ((signal.SIGINT, 0.5), (signal.SIGTERM, 3)):
        process.send_signal(ending)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        return ending.name
    process.kill()
    process.wait(30)
    return signal.SIGKILL.name
