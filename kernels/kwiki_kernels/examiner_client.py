"""The keeper's end of the examiner: what it is asked, and what its silence means."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kwiki_kernels.errors import MachineError, TaskError
from kwiki_kernels.evaluation import Environment
from kwiki_kernels.job import Job
from kwiki_kernels.keeper import POLL_S, Cancelled, Child
from kwiki_kernels.messages import (
    Broken,
    Command,
    Fell,
    Found,
    Measured,
    Message,
    Paused,
    Placed,
    Pulse,
    Request,
    TooLarge,
)
from kwiki_kernels.sensors import open_sensors
from kwiki_kernels.task import Task

SEATS = 2
"""Contests whose processes may hold contexts at the same time: one on the GPU, and the next; the last one's
are about to go."""
SLOW = 1.25
"""Over the known kernel's time at the job's start; runs of it on an idle GPU differ by a few percent."""
PATIENCE_S = (0.5, 1.0, 2.0, 4.0)
"""A GPU that comes out of heat or a low clock gets this long."""


class ExaminerClient:
    """One examiner for a whole job; several threads may ask it.

    On a GPU it first measures the machine, and runs a known kernel whenever asked.
    """

    def __init__(
        self,
        job: Job,
        task: Task,
        machine: Environment,
        parent: Path,
        stop: threading.Event,
        *,
        measure: bool,
    ) -> None:
        """`parent` is the folder that holds those of all children: arenas on the CPU are files in them."""
        request = Request(
            job=job.model_copy(update={"candidates": (), "task_files": {}}),
            task=task,
            candidate=None,
            baseline=False,
            measure=measure,
            token=secrets.token_hex(),
            check=not measure,
            folder=str(parent),
        )
        self.child = Child(request, parent, stop)
        self.stop = stop
        self.lock = threading.Lock()
        self.seats = threading.BoundedSemaphore(SEATS)
        self.seated: list[Child] = []
        self.measure = measure
        self.sensors = open_sensors() if measure else None
        self.machine = machine
        self.environment: Environment | None = None
        """The machine and its own figures, once they are measured."""

    def __enter__(self) -> ExaminerClient:
        """Start; loading takes seconds, in which candidates can build."""
        self.child.__enter__()
        self.child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    @property
    def holders(self) -> tuple[int, ...]:
        """The processes of this job that hold a context on the GPU."""
        return (*self.child.pids, *(pid for child in list(self.seated) for pid in child.pids))

    @contextlib.contextmanager
    def seat(self, children: Sequence[Child]) -> Iterator[None]:
        """A place on the GPU for the processes of one contest, while another's may hold one, too.

        Raises:
            Cancelled: `stop` was set while waiting.
        """
        while not self.seats.acquire(timeout=POLL_S):
            if self.stop.is_set():
                raise Cancelled
        self.seated += children  # for good: they have processes until they are dismissed
        try:
            yield
        finally:
            self.seats.release()

    def open(self) -> None:
        """Take the GPU and measure it; to be called once, within the lease.

        Raises, as all that follow:
            TaskError: the task is at fault.
            MachineError: the examiner or the GPU does not answer.
            Cancelled: `stop` was set meanwhile.
        """
        measured = self._ask(Command(do="open"), Measured)
        assert isinstance(measured, Measured)
        self.environment = self.machine.model_copy(
            update={
                "versions": self.machine.versions | {"cuda": measured.cuda},
                "sm_clock_mhz": self._sm_clock_mhz(),
                "copy_gbps": measured.copy_gbps,
                "timer_floor_us": measured.timer_floor_us,
            }
        )
        self.healthy_us = self._beat().device_us

    def place(self, uuid: str, key: str, folder: Path) -> Placed | TooLarge:
        """Make an arena for the child that lives in `folder`, filled with the first set of values."""
        answer = self._ask(Command(do="place", uuid=uuid, key=key, folder=str(folder)), Placed, TooLarge)
        assert isinstance(answer, Placed | TooLarge)
        return answer

    def refresh(self, key: str, number: int) -> Paused | TooLarge:
        """Fill the arena with set `number` and poison its outputs."""
        answer = self._ask(Command(do="refresh", key=key, number=number), Paused, TooLarge)
        assert isinstance(answer, Paused | TooLarge)
        return answer

    def verify(self, key: str, number: int) -> Found | TooLarge:
        """Compare the outputs in the arena with the answers to set `number`."""
        answer = self._ask(Command(do="verify", key=key, number=number), Found, TooLarge)
        assert isinstance(answer, Found | TooLarge)
        return answer

    def drop(self, key: str) -> None:
        """Give the arena back; one that is not there is no matter."""
        self._ask(Command(do="drop", key=key), Paused)

    def is_well(self) -> bool:
        """Whether a known kernel is right and as fast as it was; to be called within the lease."""
        pulse = self._beat()
        return pulse.right and pulse.device_us <= SLOW * self.healthy_us

    def expect_well(self) -> None:
        """Refuse to go on with a GPU that is wrong or slow; to be called within the lease.

        Raises:
            MachineError: it is.
        """
        device_us = 0.0
        for patience_s in (0.0, *PATIENCE_S):
            time.sleep(patience_s)
            pulse = self._beat()
            if not pulse.right:
                raise MachineError(
                    "the GPU computes a known kernel wrongly: reset or replace it, then run the job again"
                )
            device_us = pulse.device_us
            if device_us <= SLOW * self.healthy_us:
                return
        raise MachineError(
            f"the GPU has become slow: a known kernel takes {device_us:.1f} us, when the job began it took "
            f"{self.healthy_us:.1f} us: see what else runs there, then run the job again"
        )

    def _sm_clock_mhz(self) -> int | None:
        with contextlib.suppress(OSError):
            return self.sensors.read(self.holders).sm_clock_mhz if self.sensors else None
        return None

    def _beat(self) -> Pulse:
        pulse = self._ask(Command(do="pulse"), Pulse)
        assert isinstance(pulse, Pulse)
        return pulse

    def _ask(self, command: Command, *kinds: type[Message]) -> Message:
        course = self.child.course
        with self.lock:
            course.judge_s = 0.0  # its time is the candidate's, not that of the whole job
            answer = self.child.ask(command, *kinds)
        if answer is not None and not isinstance(answer, Fell):
            return answer
        self.child.kill()
        for message in course.messages:
            if isinstance(message, Broken):
                raise MachineError(message.log) if message.machine else TaskError(message.log)
        limit_s = self.child.request.job.protocol.judge_timeout_s
        if command.do in {"place", "refresh", "verify"} and course.timed_out:
            raise TaskError(
                f"the task's inputs or reference took longer than {limit_s:g} s on workload {command.uuid}: "
                "raise judge_timeout_s"
            )
        what = "the GPU cannot be used" if self.measure else "the examiner cannot go on"
        reason = "it did not answer in time" if course.timed_out else course.ending
        raise MachineError(f"{what}: {reason}. The process printed:\n{course.log}")
