"""What the keeper and its child say to each other: one request file, then JSON lines on a pipe.

The child has nothing to save and the keeper nothing to read back: whatever arrived before a child
hung, crashed or was killed is known to the keeper.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kwiki_kernels.evaluation import Environment, Record, StaticReport, Status, WorkloadResult
from kwiki_kernels.job import Candidate, Job


class Request(Record):
    """Judge `candidate` on the workloads of `job`; without a candidate, measure the machine itself."""

    job: Job
    """The job without its candidates."""
    candidate: Candidate | None
    baseline: bool
    """The source is a `run(*inputs) -> outputs` to be timed as it is, with nothing to build."""
    measure: bool
    """Go on to the GPU after building, once the keeper says so."""
    token: str
    """What the child puts before each message, so that a line from elsewhere is known for one."""
    check: bool = False
    """Go on to the CPU instead: right or wrong, and nothing about time."""


class Confined(Record):
    """The process is as closed as it will be; nothing of the candidate has run."""

    event: Literal["confined"] = "confined"
    isolation: tuple[str, ...]


class Building(Record):
    """A compilation begins."""

    event: Literal["building"] = "building"
    what: str


class Built(Record):
    """The build is over. `log` is what a reader should know, such as a missing disassembler."""

    event: Literal["built"] = "built"
    failures: dict[str, str]
    """Workload uuid to the error of the binary that it needs."""
    reports: tuple[StaticReport, ...]
    log: str


class Failed(Record):
    """Nothing more can be said about this candidate."""

    event: Literal["failed"] = "failed"
    status: Status
    log: str


class Ready(Record):
    """The GPU answers; what goes wrong from here on is the candidate's doing."""

    event: Literal["ready"] = "ready"


class Started(Record):
    """A workload begins."""

    event: Literal["started"] = "started"
    uuid: str


class Judged(Record):
    """A workload is over."""

    event: Literal["judged"] = "judged"
    result: WorkloadResult


class Measured(Record):
    """The machine's own figures."""

    event: Literal["measured"] = "measured"
    environment: Environment


class Done(Record):
    """All that was asked is done."""

    event: Literal["done"] = "done"


class Broken(Record):
    """The task or the machine is at fault, not the candidate."""

    event: Literal["broken"] = "broken"
    machine: bool
    log: str


Message = Annotated[
    Confined | Building | Built | Failed | Ready | Started | Judged | Measured | Done | Broken,
    Field(discriminator="event"),
]
MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
GO = b"go\n"
"""What the keeper writes to the child's standard input once the GPU is the child's."""
