"""Keeps a child process on its course: what it is told, time limits, and an end in every case."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from kwiki_kernels.evaluation import Status
from kwiki_kernels.messages import (
    MESSAGE,
    Broken,
    Building,
    Built,
    Command,
    Done,
    Failed,
    Judged,
    Message,
    Ready,
    Request,
    Started,
)
from kwiki_kernels.sensors import Reading

ANSWERED_ONCE = {"prepare", "round", "finish"}
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
    "USER",
    "LOGNAME",
)
"""Variables, or their beginnings, that a child sees; a token in any other name stays here."""


class Span(NamedTuple):
    """What was done from when to when, in seconds of the monotonic clock."""

    what: Literal["build", "gpu"]
    start_s: float
    end_s: float


class Cancelled(Exception):  # noqa: N818 - an end that was asked for, not an error
    """The keeper was asked to stop; the child is dead."""


@dataclass
class Course:
    """What a child said and how it ended."""

    messages: list[Message] = field(default_factory=list)
    asked: int = 0
    """Commands that are answered by Paused or Judged, once each."""
    readings: dict[str, list[Reading]] = field(default_factory=dict)
    """Workload to how the GPU was after each round of it."""
    spans: list[Span] = field(default_factory=list)
    """When it built and when it was on the GPU."""
    timed_out: bool = False
    returncode: int | None = None
    log: str = ""
    """The end of what it printed."""
    build_s: float = 0.0
    judge_s: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.timed_out or self.returncode is not None or self.said(Failed, Broken, Done)

    def said(self, *kinds: type[Message]) -> bool:
        """Whether a message of one of these kinds arrived."""
        return any(isinstance(message, kinds) for message in self.messages)

    @property
    def doing(self) -> str:
        """The last thing that it said it was doing."""
        steps = [m for m in self.messages if isinstance(m, Building | Built | Ready | Started)]
        match steps[-1] if steps else None:
            case Building(what=what):
                return f"while building ({what})"
            case Started(uuid=uuid):
                return f"on workload {uuid}"
            case Ready():
                return "before the first workload"
            case Built():
                return "while opening the GPU"
            case _:
                return "while starting"

    @property
    def ending(self) -> str:
        """How a process that did not finish went, in words."""
        if self.returncode is not None and self.returncode < 0:
            return f"the process died of {signal.Signals(-self.returncode).name} {self.doing}"
        return f"the process exited with code {self.returncode} {self.doing}"


class _Channel:
    """Messages from a pipe, without ever blocking on a child that is silent or gone."""

    def __init__(self, fd: int, token: str) -> None:
        os.set_blocking(fd, False)
        self.token = token.encode()
        self.fd = fd
        self.poller = select.poll()
        self.poller.register(fd, select.POLLIN)
        self.rest = b""
        self.closed = False

    def receive(self, timeout_s: float) -> list[Message]:
        if self.closed:
            time.sleep(timeout_s)
            return []
        self.poller.poll(1000 * timeout_s)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.fd, 1 << 16):
                self.rest += chunk
            self.closed = True
        *lines, self.rest = self.rest.split(b"\n")
        return [_parse(line, self.token) for line in lines]

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd, self.closed = -1, True


class Child:
    """The process of one candidate, in a session of its own; killed as a group on leaving."""

    def __init__(self, request: Request, stop: threading.Event) -> None:
        self.request, self.stop = request, stop
        self.course = Course()
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Child:
        self.scratch = tempfile.TemporaryDirectory(prefix="kernel-wiki-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.scratch.cleanup()

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process, while there is one."""
        return (self.process.pid,) if self.process else ()

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: it cannot be started or no file written here.
        """
        folder = Path(self.scratch.name)
        (folder / "dump").mkdir()
        (folder / "request.json").write_text(self.request.model_dump_json(), encoding="utf-8")
        read_fd, write_fd = os.pipe()
        command = [sys.executable, "-P", "-m", "kwiki_kernels.child", "request.json", str(write_fd)]
        self.channel = _Channel(read_fd, self.request.token)
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
        began = time.monotonic()
        self.course.build_s = self._listen((Built,), self.request.job.protocol.build_timeout_s)
        self.course.spans.append(Span("build", began, time.monotonic()))

    def ask(self, command: Command, *answers: type[Message]) -> bool:
        """Tell the child one thing and wait for its answer, within its time for judging.

        Returns whether one of `answers` came.

        Raises:
            Cancelled: `stop` was set.
        """
        course = self.course
        if course.over:
            return False
        course.asked += command.do in ANSWERED_ONCE
        assert self.process is not None
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{command.model_dump_json()}\n".encode())
            self.process.stdin.flush()
        said = len(course.messages)
        began = time.monotonic()
        self._listen_on((*answers, Judged))  # what fails is judged at once
        if command.do in ANSWERED_ONCE:
            course.spans.append(Span("gpu", began, time.monotonic()))
        if course.timed_out:
            self.kill()  # at once, since rivals may be waiting for the GPU
        return any(isinstance(message, answers) for message in course.messages[said:])

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
        self.course.log = _tail(Path(self.scratch.name) / "log.txt")
        self.process = None

    def _listen_on(self, until: tuple[type[Message], ...]) -> None:
        left_s = self.request.job.protocol.judge_timeout_s - self.course.judge_s
        self.course.judge_s += self._listen(until, left_s)

    def _listen(self, until: tuple[type[Message], ...], limit_s: float) -> float:
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


def _parse(line: bytes, token: bytes) -> Message:
    sender, _, message = line.partition(b" ")
    try:
        if sender == token:
            return MESSAGE.validate_json(message)
    except ValidationError:
        pass
    return Failed(status=Status.REJECTED, log="the kernel wrote to the judge's result channel")


def child_environ(folder: Path, request: Request) -> dict[str, str]:
    """The variables of a process that runs a candidate in `folder`: what it needs, and no credentials."""
    package_root = str(Path(__file__).parents[1])
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    if request.check:
        passed_on |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
    return passed_on | {
        "CUTE_DSL_ARCH": request.job.arch,
        "CUTE_DSL_KEEP": "cubin",
        "CUTE_DSL_LINEINFO": "1",  # names the lines that spill; the machine code stays the same
        "CUTE_DSL_DUMP_DIR": str(folder / "dump"),
        "HOME": str(folder),
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
