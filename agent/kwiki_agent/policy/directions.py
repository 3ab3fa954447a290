"""Ideas apart from their drafts: which directions a run has tried, and which it may still try.

A candidate is one draft of a direction. A draft that does not compile or is slow costs the direction one
of its tries, no more; so a good idea survives a bad first draft, and a poor one cannot eat the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kwiki_kernels.evaluation import Record

from kwiki_agent.policy import STALLED_BEFORE_NEW_DIRECTION
from kwiki_agent.trials import Trial

MAX_TRIES = 5
"""Drafts that one direction may take."""


class Direction(Record):
    """An idea, ranked by what it may bring before any of it is written."""

    name: str
    why: str
    """What should get faster by it, and what shows that this bounds the kernel."""


@dataclass(frozen=True)
class Standing:
    """What came of a direction so far. `best` is the highest score of its drafts, None without any."""

    name: str
    tries: int
    failed: int
    best: float | None

    @property
    def open(self) -> bool:
        return self.tries < MAX_TRIES


def standings(trials: Iterable[Trial]) -> dict[str, Standing]:
    """Directions by name, in the order in which they were first tried."""
    found: dict[str, Standing] = {}
    for trial in trials:
        name = trial.candidate.direction
        if not name:
            continue
        before = found.get(name, Standing(name, 0, 0, None))
        scores = [score for score in (before.best, trial.score) if score is not None]
        best = max(scores, default=None)
        found[name] = Standing(name, before.tries + 1, before.failed + trial.failed, best)
    return found


def why_closed(name: str, tried: dict[str, Standing], *, stalled: int) -> str | None:
    """Why no further draft of this direction is taken now; None: it is open.

    Args:
        stalled: rounds in a row without a promotion; from two on only new directions are open.
    """
    standing = tried.get(name)
    if standing is None:
        return None
    if not standing.open:
        return f"direction '{name}' has had its {MAX_TRIES} tries: take another"
    if stalled >= STALLED_BEFORE_NEW_DIRECTION:
        return f"{stalled} rounds brought no promotion: take a direction that was not tried yet, not '{name}'"
    return None
