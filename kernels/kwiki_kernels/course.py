"""What a child said, how far it came and how it ended."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kwiki_kernels.evaluation import WorkloadResult
from kwiki_kernels.messages import Broken, Building, Built, Done, Failed, Message, Ready


class Span(NamedTuple):
    """What was done from when to when, in seconds of the monotonic clock."""

    what: Literal["build", "open", "gpu"]
    start_s: float
    end_s: float


@dataclass
class Course:
    """What a child said and how it ended."""

    messages: list[Message] = field(default_factory=list)
    asked: int = 0
    """Commands that are answered by one of `FromCandidate`, once each."""
    workload: str = ""
    """The one that it works on or has worked on last."""
    results: dict[str, WorkloadResult] = field(default_factory=dict)
    """Workloads that it has seen to the end, whatever that was."""
    spans: list[Span] = field(default_factory=list)
    """When it built, when it opened the GPU, and when it, or the examiner for it, was at work there."""
    timed_out: bool = False
    returncode: int | None = None
    log: str = ""
    """The end of what it printed."""
    build_s: float = 0.0
    judge_s: float = 0.0
    """Spent by itself; the examiner's time is not its own."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.timed_out or self.returncode is not None or self.said(Failed, Broken, Done)

    @contextlib.contextmanager
    def clocked(self, what: Literal["build", "open", "gpu"]) -> Iterator[None]:
        """Note from when to when this was done."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(what, began, time.monotonic()))

    def said(self, *kinds: type[Message]) -> bool:
        """Whether a message of one of these kinds arrived."""
        return any(isinstance(message, kinds) for message in self.messages)

    @property
    def doing(self) -> str:
        """The last thing that it said it was doing."""
        if self.workload:
            return f"on workload {self.workload}"
        steps = [m for m in self.messages if isinstance(m, Building | Built | Ready)]
        match steps[-1] if steps else None:
            case Building(what=what):
                return f"while building ({what})"
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
