"""What the keeper and its child say to each other: one request file, then JSON lines both ways.

After the build the child only does what it is told, one command at a time, and answers each with one
message; so the keeper knows which child uses the GPU. The child has nothing to save and the keeper
nothing to read back: whatever arrived before a child hung, crashed or was killed is known.
"""

from __future__ import annotations

from collections.abc import Callable
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


class Command(Record):
    """What the child is to do next; the end of its input is the end of its work.

    `open`: take the GPU, answer Ready. `prepare`: check workload `uuid` and make ready to time it,
    answer Paused. `round`: time one round, answer Paused; `fresh`: with other values, as they will be
    verified. `finish`: verify and answer Judged. A workload that has failed is Judged at once.
    `pulse`: of the machine's own child, answer Pulse.
    """

    do: Literal["open", "prepare", "round", "finish", "pulse"]
    uuid: str = ""
    fresh: bool = False


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


class Paused(Record):
    """What was told is done and the GPU is idle."""

    event: Literal["paused"] = "paused"


class Judged(Record):
    """A workload is over."""

    event: Literal["judged"] = "judged"
    result: WorkloadResult


class Measured(Record):
    """The machine's own figures."""

    event: Literal["measured"] = "measured"
    environment: Environment


class Pulse(Record):
    """A kernel whose result and time are known has run."""

    event: Literal["pulse"] = "pulse"
    right: bool
    device_us: float


class Done(Record):
    """All that was asked is done."""

    event: Literal["done"] = "done"


class Broken(Record):
    """The task or the machine is at fault, not the candidate."""

    event: Literal["broken"] = "broken"
    machine: bool
    log: str


Message = Annotated[
    Confined
    | Building
    | Built
    | Failed
    | Ready
    | Started
    | Paused
    | Judged
    | Measured
    | Pulse
    | Done
    | Broken,
    Field(discriminator="event"),
]
MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
Send = Callable[[Message], None]
