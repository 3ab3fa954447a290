"""Keeps a child process on its course: time limits, the GPU lease, and an end in every case."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from kwiki_kernels.evaluation import Status
from kwiki_kernels.messages import (
    GO,
    MESSAGE,
    Broken,
    Building,
    Built,
    Done,
    Failed,
    Message,
    Ready,
    Request,
    Started,
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
    "USER",
    "LOGNAME",
)
"""Variables, or their beginnings, that a child sees; a token in any other name stays here."""


class Cancelled(Exception):  # noqa: N818 - an end that was asked for, not an error
    """The keeper was asked to stop; the child is dead."""


@dataclass
class Course:
    """What a child said and how it ended."""

    messages: list[Message] = field(default_factory=list)
    timed_out: bool = False
    returncode: int | None = None
    log: str = ""
    """The end of what it printed."""
    build_s: float = 0.0
    judge_s: float = 0.0

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


def supervise(request: Request, stop: threading.Event) -> Course:
    """Run one child to its end.

    Raises:
        Cancelled: `stop` was set meanwhile.
        OSError: no process can be started or no file written here.
    """
    limits = request.job.protocol
    with tempfile.TemporaryDirectory(prefix="kernel-wiki-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        with _Child(folder, request, stop) as child:
            course = child.course
            if request.candidate is not None:
                course.build_s = child.listen(Built, limits.build_timeout_s)
            if request.check and course.said(Built):
                course.judge_s = child.listen(Done, limits.judge_timeout_s)
            if request.candidate is None or (request.measure and course.said(Built)):
                with gpu_lease(stop):
                    child.go()
                    course.judge_s = child.listen(Done, limits.judge_timeout_s)
                    # The lease ends only when the child is gone: a hung kernel would spoil the next timing.
                    child.kill()
        course.log = _tail(folder / "log.txt")
        return course


@contextlib.contextmanager
def gpu_lease(stop: threading.Event) -> Iterator[None]:
    """The GPU for one candidate at a time, across threads and processes of this user.

    Raises:
        Cancelled: `stop` was set while waiting.
    """
    path = Path(tempfile.gettempdir()) / f"kernel-wiki-gpu-{os.getuid()}.lock"
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(POLL_S):
                    raise Cancelled from None
        yield


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


class _Child:
    """The process of one candidate, in a session of its own; killed as a group on leaving."""

    def __init__(self, folder: Path, request: Request, stop: threading.Event) -> None:
        self.course = Course()
        self.stop = stop
        (folder / "dump").mkdir()
        (folder / "request.json").write_text(request.model_dump_json(), encoding="utf-8")
        read_fd, write_fd = os.pipe()
        self.channel = _Channel(read_fd, request.token)
        command = [sys.executable, "-P", "-m", "kwiki_kernels.child", "request.json", str(write_fd)]
        try:
            with (folder / "log.txt").open("wb") as log:
                self.process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=child_environ(folder, request),
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

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self.channel.fd)

    def listen(self, until: type[Built] | type[Done], limit_s: float) -> float:
        """Collect messages until that one or an end arrives, the child ends or its time is up.

        Returns the seconds that took.

        Raises:
            Cancelled: `stop` was set.
        """
        began = time.monotonic()
        while True:
            self.course.returncode = self.process.poll()
            ended = self.course.returncode is not None
            messages = self.channel.receive(0 if ended else POLL_S)
            self.course.messages += messages
            if ended or any(isinstance(message, (until, Failed, Broken)) for message in messages):
                break
            if time.monotonic() - began > limit_s:
                self.course.timed_out = True
                break
            if self.stop.is_set():
                raise Cancelled
        return time.monotonic() - began

    def go(self) -> None:
        """Tell the child that the GPU is its own."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(GO)
            self.process.stdin.flush()

    def kill(self) -> None:
        """End the process and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
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
