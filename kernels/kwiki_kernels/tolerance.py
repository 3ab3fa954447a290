"""How close to the oracle is right, where a task says so itself."""

from __future__ import annotations

from pydantic import Field

from kwiki_kernels.evaluation import Record


class ContestTolerance(Record):
    """A contest's own verdict, reported beside ours: an element fails where it exceeds both bounds."""

    atol: float = Field(gt=0)
    rtol: float = Field(gt=0)
    matched_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the elements that must not fail."""


class Tolerance(Record):
    """How close is right. Without a file, `check` derives everything from the outputs' precision."""

    relative_l2: dict[str, float] = {}
    """Output to the largest ||out - ref|| / ||ref|| against float64, where faithful kernels round inside."""
    selection: bool = False
    """The one output selects the best candidates: any order, and near ties may go either way."""
    contest: ContestTolerance | None = None


BY_PRECISION = Tolerance()
"""Everything follows from the outputs' precision."""
