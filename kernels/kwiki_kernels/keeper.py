"""Keeps a child process on its course: what it is told, time limits, and an end in every case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kwiki_kernels.channel import Channel
from kwiki_kernels.course import Course
from kwiki_kernels.evaluation import Record
from kwiki_kernels.messages import (
    Broken,
    Built,
    Command,
    Done,
    Failed,
    Fell,
    Message,
    Request,
)

LOG_TAIL_BYTES = 2000
POLL_S = 0.05
PASSED_ON = (
    "CUDA_",
    "NVIDIA_",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_",
    "TZ",
)
"""Variables, or their beginnings, that a child sees; a token in any other name stays here."""


class Cancelled(Exception):  # noqa: N818 - an end that was asked for, not an error
    """The keeper was asked to stop; the child is dead."""


class Child:
    """The process of one candidate, in a session of its own; killed as a group on leaving."""

    def __init__(self, request: Request, parent: Path, stop: threading.Event) -> None:
        """Its folder will lie in `parent`."""
        self.request, self.parent, self.stop = request, parent, stop
        self.course = Course()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Child:
        self.scratch = tempfile.TemporaryDirectory(dir=self.parent, ignore_cleanup_errors=True)
        self.folder = Path(self.scratch.name)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.scratch.cleanup()

    @property
    def gone(self) -> bool:
        """Whether it can no longer answer."""
        return self.course.over or self.process is None

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process, while there is one; other threads ask, too."""
        process = self.process
        return (process.pid,) if process else ()

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: it cannot be started or no file written here.
        """
        folder = self.folder
        (folder / "dump").mkdir()
        (folder / "request.json").write_text(self.request.model_dump_json(), encoding="utf-8")
        read_fd, write_fd = os.pipe()
        command = [sys.executable, "-P", "-m", "kwiki_kernels.child", "request.json", str(write_fd)]
        self.channel = Channel(read_fd, self.request.token)
        try:
            with (folder / "log.txt").open("wb") as log:
                self.process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=child_environ(folder, self.request),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_fd,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)

    def build(self) -> None:
        """Start, and listen until the build is over.

        Raises:
            Cancelled: `stop` was set.
            OSError: as `start`.
        """
        self.start()
        with self.course.clocked("build"):
            self.course.build_s = self._listen((Built,), self.request.job.protocol.build_timeout_s)

    def ask(self, command: Command, *answers: type[Message]) -> Message | None:
        """Tell the child one thing and wait for its answer, within its time for judging.

        Returns one of `answers`, or Fell; None where none came. A child that is out of time is killed
        at once, since rivals may be waiting for the GPU.

        Raises:
            Cancelled: `stop` was set.
        """
        course = self.course
        if self.gone:
            return None
        assert self.process is not None
        assert self.process.stdin is not None
        course.asked += command.do != "open"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{command.model_dump_json()}\n".encode())
            self.process.stdin.flush()
        said = len(course.messages)
        self._listen_on((*answers, Fell))
        if course.timed_out:
            self.kill()
        heard = course.messages[said:]
        return next((message for message in heard if isinstance(message, (*answers, Fell))), None)

    def dismiss(self) -> None:
        """Let the child come to its end, and end it.

        Raises:
            Cancelled: `stop` was set.
        """
        if self.process is not None and not self.course.over:
            self._close_input()
            self._listen_on((Done,))
        self.kill()

    def kill(self) -> None:
        """End the process and its group; what it printed last is kept."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close_input()
        self.channel.close()
        self.course.log = _tail(self.folder / "log.txt")
        self.process = None

    def _listen_on(self, until: tuple[type[Record], ...]) -> None:
        left_s = self.request.job.protocol.judge_timeout_s - self.course.judge_s
        self.course.judge_s += self._listen(until, left_s)

    def _listen(self, until: tuple[type[Record], ...], limit_s: float) -> float:
        """Collect messages until one of those or an end arrives, the child ends or its time is up.

        Returns the seconds that took.
        """
        assert self.process is not None
        began = time.monotonic()
        while True:
            self.course.returncode = self.process.poll()
            ended = self.course.returncode is not None
            messages = self.channel.receive(0 if ended else POLL_S)
            self.course.messages += messages
            if ended or any(isinstance(message, (*until, Failed, Broken, Done)) for message in messages):
                break
            if time.monotonic() - began > limit_s:
                self.course.timed_out = True
                break
            if self.stop.is_set():
                raise Cancelled
        return time.monotonic() - began

    def _close_input(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def child_environ(folder: Path, request: Request) -> dict[str, str]:
    """The variables of a process that runs a candidate in `folder`: what it needs, and no credentials."""
    package_root = str(Path(__file__).parents[1])
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    if request.check:
        passed_on |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    return passed_on | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # as nvidia-smi and NVML count, whom the keeper asks
        "CUTE_DSL_ARCH": request.job.arch,
        "CUTE_DSL_KEEP": "cubin",
        "CUTE_DSL_LINEINFO": "1",  # names the lines that spill; the machine code stays the same
        "CUTE_DSL_DUMP_DIR": str(folder / "dump"),
        "HOME": str(folder),
        "LOGNAME": "judge",  # torch's compiler wants a user's name, and the list of users is closed
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package_root))),
        "TMPDIR": str(folder),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _tail(path: Path) -> str:
    with path.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - LOG_TAIL_BYTES))
        return log.read().decode(errors="replace").strip()
