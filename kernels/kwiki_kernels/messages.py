"""What the keeper and its children say to each other: one request file, then JSON lines both ways.

There are two kinds of children. A candidate's has the candidate's text and runs it; the examiner has
the seed, the inputs and the reference, and looks at what came out. After the build a child only does
what it is told, one command at a time, and answers each with one message; so the keeper knows which
child uses the GPU. Children have nothing to save and the keeper nothing to read back: whatever arrived
before a child hung, crashed or was killed is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kwiki_kernels.evaluation import ErrorStats, Record, StaticReport, Status, Timer
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.task import Task


class Request(Record):
    """Serve as the process of `candidate`, or without one as the examiner."""

    job: Job
    """Without its candidates and task files; for a candidate's process without the seed, too."""
    task: Task
    """For a candidate's process without reference, baselines and files."""
    candidate: Candidate | None
    baseline: bool
    """The source is a `run(*inputs) -> outputs` to be timed as it is, with nothing to build."""
    measure: bool
    """Go on to the GPU after building, once the keeper says so."""
    token: str
    """What the child puts before each message, so that a line from elsewhere is known for one."""
    check: bool = False
    """Go on to the CPU instead: right or wrong, and nothing about time."""
    folder: str = "."
    """Where a confined child may write."""


class Slot(Record):
    """A tensor in an arena."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    """Bytes from the arena's start."""


class Scalar(Record):
    """An input that is a number."""

    value: bool | int | float | None


class Placement(Record):
    """Inputs and outputs of a workload, in memory that two processes share."""

    size: int
    """Bytes."""
    inputs: tuple[Slot | Scalar, ...]
    outputs: tuple[Slot, ...]
    handle: str = ""
    """What the other process opens the arena by."""


class Command(Record):
    """What a child is to do next; the end of its input is the end of its work."""

    do: Literal[
        "open", "bind", "call", "arm", "round", "finish", "leave",
        "place", "refresh", "verify", "drop", "pulse",
    ]  # fmt: skip
    """Of any child: `open`: take the GPU, answer Ready (the examiner: Measured).

    Of a candidate's: `bind`: take workload `uuid` in the arena of `placement`. `call`: call the kernel
    once. `arm`: make ready to time it. `round`: time one round. `leave`: let go of the workload. All
    these are answered by Paused, `finish` (tell how it was timed) by Timed, and each that fails by Fell.

    Of the examiner: `place`: make an arena with inputs of workload `uuid`, call it `key`, answer Placed
    or TooLarge. `refresh`: put the values of set `number` into it and poison its outputs, answer Paused.
    `verify`: compare the outputs with what the reference makes of that set, answer Found. `drop`: give
    the arena back, answer Paused. `pulse`: see how the GPU is, answer Pulse.
    """
    uuid: str = ""
    key: str = ""
    number: int = 0
    folder: str = ""
    """Of the child that an arena on the CPU is for."""
    placement: Placement | None = None


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
    runnable: tuple[str, ...] = ()
    """Workloads that can be called here."""
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


class Paused(Record):
    """What was told is done and the GPU is idle."""

    event: Literal["paused"] = "paused"
    broken: str = ""
    """What the kernel did to its judge by now, as one sentence."""
    device_us: tuple[float, ...] = ()
    """Of a round: the device time of each iteration, us."""


class Timed(Record):
    """How a workload was timed."""

    event: Literal["timed"] = "timed"
    broken: str
    timer: Timer
    note: str
    """What a reader of the figures should know."""
    host_us: float
    span_us: float | None
    idle: int
    """Timed calls of the last round that did not write their outputs."""
    kernels: tuple[str, ...]
    """Names of what one call launches; empty where they were not asked for."""


class Fell(Record):
    """The kernel failed at what was told; nothing more can be asked about this workload."""

    event: Literal["fell"] = "fell"
    status: Status
    log: str
    broken: str


class Placed(Record):
    """An arena is there and filled, with the outputs poisoned."""

    event: Literal["placed"] = "placed"
    placement: Placement
    bytes_moved: int
    flops: int
    roofline_us: float | None
    floor_us: float | None


class TooLarge(Record):
    """Memory does not hold the workload and its reference."""

    event: Literal["too-large"] = "too-large"
    log: str


class Found(Record):
    """What the examiner found in the outputs."""

    event: Literal["found"] = "found"
    status: Status
    log: str
    error: ErrorStats | None
    contest_passed: bool | None


class Measured(Record):
    """The machine's own figures."""

    event: Literal["measured"] = "measured"
    cuda: str
    """Version that torch was built with."""
    copy_gbps: float
    timer_floor_us: float


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


FromCandidate = Paused | Timed | Fell
FromExaminer = Paused | Placed | TooLarge | Found | Pulse
Message = Annotated[
    Confined | Building | Built | Failed | Ready | Measured | FromCandidate | FromExaminer | Done | Broken,
    Field(discriminator="event"),
]
MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
Send = Callable[[Message], None]
