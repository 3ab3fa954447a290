"""Tries one snippet in a process of its own, which is killed at its limit.

The process gets few environment variables and an empty folder, no more: that keeps accidents apart, and is
no sandbox. A page's code runs with the rights of whoever verifies it, like a test of any repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from kwiki_ingest.truth.fences import Kind
from kwiki_ingest.truth.outcomes import Outcome

OUTPUT_LIMIT_BYTES = 64 << 20
READ_BYTES = 256 << 10
INHERITED = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV")

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RAISED = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b|error\b(?=[\[:]))", re.MULTILINE
)
_PLACE = re.compile(r"\n\s*(?:-->|\|)")  # where the DSL goes on with an excerpt of the code


@dataclass(frozen=True)
class Trial:
    """One snippet for one architecture. `text` is what a snippet of kind `error` must print."""

    kind: Kind
    arch: str
    text: str
    code: str


def attempt(trial: Trial, python: Path, limit_s: float, stop: Event) -> tuple[Outcome, bool]:
    """Run it until it ends, its time is up or `stop` is set.

    The flag says whether the outcome is surely the snippet's own: a busy machine makes things slow.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-wiki-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        (root / "snippet.py").write_text(trial.code, encoding="utf-8")
        (root / "cubins").mkdir()
        start = time.monotonic()
        status = _run(root, trial, python, limit_s, stop)
        duration_s = time.monotonic() - start
        output = _ANSI.sub("", _tail(root / "output"))
        if status is None:
            return Outcome(False, f"it did not end within {limit_s:g} s and was killed", 0, duration_s), False
        if status < 0:
            name = signal.Signals(-status).name
            return Outcome(False, f"it crashed the process ({name})", 0, duration_s), False
        message = _verdict(trial, status, output, [path.name for path in (root / "cubins").iterdir()])
        line = _line(output) if message and status else 0
        return Outcome(not message, message, line, duration_s), True


def _run(root: Path, trial: Trial, python: Path, limit_s: float, stop: Event) -> int | None:
    """The exit status, or None if it had to be killed. Nothing that it started outlives it."""
    with (root / "output").open("wb") as output:
        process = subprocess.Popen(
            [python, "snippet.py"],
            cwd=root,
            env=_environment(root, trial),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (OUTPUT_LIMIT_BYTES, OUTPUT_LIMIT_BYTES))
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
            return _wait(process, limit_s, stop)
        except ProcessLookupError:  # it is over already
            return process.wait()
        finally:
            _kill_group(process)


def _wait(process: subprocess.Popen[bytes], limit_s: float, stop: Event) -> int | None:
    end = time.monotonic() + limit_s
    while (left_s := end - time.monotonic()) > 0 and not stop.is_set():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left_s, 0.5))
    return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(root: Path, trial: Trial) -> dict[str, str]:
    kept = {name: os.environ[name] for name in INHERITED if name in os.environ}
    environment = kept | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "TMPDIR": str(root),
        "CUTE_DSL_KEEP": "cubin",
        "CUTE_DSL_DUMP_DIR": str(root / "cubins"),
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
    }
    if trial.kind != "runs":  # what a page claims of compiling must hold on a machine without a GPU
        environment |= {"CUTE_DSL_ARCH": trial.arch, "CUDA_VISIBLE_DEVICES": ""}
    return environment


def _verdict(trial: Trial, status: int, output: str, cubins: list[str]) -> str:
    """Why the claim does not hold, or nothing."""
    if trial.kind == "error":
        if status == 0:
            return "it was to fail, and it succeeded"
        if _folded(trial.text) not in _folded(output):
            return f"it was to fail with `{trial.text}`, but failed with: {_reason(output)}"
        return ""
    if status:
        return _reason(output)
    if trial.kind == "compiles" and not any(f".{trial.arch}." in name for name in cubins):
        return f"it compiled no kernel for {trial.arch}; call cute.compile with fake tensors"
    return ""


def _reason(output: str) -> str:
    """What was raised, in one line: the last exception and the lines that belong to it."""
    raised = [match.start() for match in _RAISED.finditer(output)]
    text = output[raised[-1] :] if raised else output.strip().rpartition("\n")[2]
    text = _PLACE.split(text, maxsplit=1)[0]
    return " ".join(text.split())[:300] or "it failed without a message"


def _line(output: str) -> int:
    """The innermost line of the snippet that the output names; 0 where it names none."""
    lines = re.findall(r'snippet\.py(?:", line |:)(\d+)', output)
    return int(lines[-1]) if lines else 0


def _folded(text: str) -> str:
    return " ".join(text.split())


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - READ_BYTES))
        return file.read().decode("utf-8", "replace")
