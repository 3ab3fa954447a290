"""Where the time of a job went, so that the judge's own share is known."""

from __future__ import annotations

from collections.abc import Iterable

from kwiki_kernels.course import Span
from kwiki_kernels.evaluation import Record


class Account(Record):
    """Of one job."""

    wall_s: float
    build_s: float
    """With at least one candidate building."""
    gpu_s: float
    """With a candidate being checked or timed."""
    own_s: float
    """The rest, in which neither went on: contexts made, machine measured, verdicts written."""

    @property
    def own_share(self) -> float:
        """The judge's own share of the job's time, 0..1."""
        return self.own_s / self.wall_s

    @property
    def sentence(self) -> str:
        """For a person."""
        return (
            f"{self.wall_s:.1f} s: {self.build_s:.1f} s building, {self.gpu_s:.1f} s checking and timing, "
            f"{self.own_s:.1f} s ({self.own_share:.1%}) neither"
        )


def account(spans: Iterable[Span], began_s: float, ended_s: float) -> Account:
    """Add up what went on between two moments of the monotonic clock."""
    spans = list(spans)
    return Account(
        wall_s=ended_s - began_s,
        build_s=_covered_s(span for span in spans if span.what == "build"),
        gpu_s=_covered_s(span for span in spans if span.what == "gpu"),
        own_s=ended_s - began_s - _covered_s(span for span in spans if span.what != "open"),
    )


def _covered_s(spans: Iterable[Span]) -> float:
    """Length of their union."""
    covered = 0.0
    until = 0.0
    for span in sorted(spans, key=lambda span: span.start_s):
        covered += max(0.0, span.end_s - max(span.start_s, until))
        until = max(until, span.end_s)
    return covered
