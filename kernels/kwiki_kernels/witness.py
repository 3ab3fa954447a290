"""A process of the judge's own on the GPU, without a candidate: it knows how the machine was and is."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TypeVar

from kwiki_kernels.errors import MachineError
from kwiki_kernels.evaluation import Environment
from kwiki_kernels.job import Job
from kwiki_kernels.keeper import Child
from kwiki_kernels.messages import Command, Measured, Pulse, Request
from kwiki_kernels.sensors import open_sensors

Answer = TypeVar("Answer", Measured, Pulse)
SLOW = 1.25
"""Over the known kernel's time at the job's start; runs of it on an idle GPU differ by a few percent."""
PATIENCE_S = (0.5, 1.0, 2.0, 4.0)
"""A GPU that comes out of heat or a low clock gets this long."""


class Witness:
    """Measures copy bandwidth and timer floor at once, then a known kernel whenever asked."""

    def __init__(self, job: Job, stop: threading.Event) -> None:
        bare = job.model_copy(update={"candidates": ()})
        token = secrets.token_hex()
        self.child = Child(Request(job=bare, candidate=None, baseline=False, measure=True, token=token), stop)
        self.sensors = open_sensors()
        self.environment: Environment | None = None

    def __enter__(self) -> Witness:
        """Start; loading takes seconds, in which candidates can build."""
        self.child.__enter__()
        self.child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process that holds the GPU beside the candidates."""
        return self.child.pids

    def open(self) -> None:
        """Take the GPU and measure it, once; to be called within the lease.

        Raises:
            MachineError: the GPU does not answer.
            Cancelled: `stop` was set meanwhile.
        """
        if self.environment is None:
            self.environment = self._ask(Command(do="open"), Measured).environment
            self.healthy_us = self._beat().device_us

    def expect_well(self) -> None:
        """Refuse to go on with a GPU that a candidate has left wrong or slow; to be called within the lease.

        Raises:
            MachineError: it is, or it does not answer.
        """
        device_us = 0.0
        for patience_s in (0.0, *PATIENCE_S):
            time.sleep(patience_s)
            device_us = self._beat().device_us
            if device_us <= SLOW * self.healthy_us:
                return
        raise MachineError(
            f"the GPU has become slow: a known kernel takes {device_us:.1f} us, when the job began it took "
            f"{self.healthy_us:.1f} us: see what else runs there, then run the job again"
        )

    def _beat(self) -> Pulse:
        pulse = self._ask(Command(do="pulse"), Pulse)
        if not pulse.right:
            raise MachineError(
                "the GPU computes a known kernel wrongly: reset or replace it, then run the job again"
            )
        return pulse

    def _ask(self, command: Command, kind: type[Answer]) -> Answer:
        said = len(self.child.course.messages)
        self.child.ask(command, kind)
        for message in self.child.course.messages[said:]:
            if isinstance(message, kind):
                return message
        course = self.child.course
        self.child.kill()
        reason = "it did not answer in time" if course.timed_out else course.ending
        raise MachineError(f"the GPU cannot be used: {reason}. The process printed:\n{course.log}")
