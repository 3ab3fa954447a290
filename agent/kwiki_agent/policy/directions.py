"""Ideas apart from their drafts: which directions a run has tried, and which it may still try.

A candidate is one draft of a direction. A draft that does not compile or is slow costs the direction one
of its tries, no more; so a good idea survives a bad first draft, and a poor one cannot eat the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kwiki_kernels.evaluation import Record
from kwiki_kernels.job import Candidate

from kwiki_agent.contract import AgentError
from kwiki_agent.policy import STALLED_BEFORE_NEW_DIRECTION, Brief
from kwiki_agent.runs import RunFolder, write_text
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


class Ranking(Record):
    """The directions of a run, the most promising first: `directions.json` in the run folder."""

    directions: tuple[Direction, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(direction.name == name for direction in self.directions)

    def merged(self, newer: Iterable[Direction]) -> Ranking:
        """The newer order first; what it leaves out stays behind it, so that no idea is lost."""
        chosen = {direction.name: direction for direction in newer}
        older = (direction for direction in self.directions if direction.name not in chosen)
        return Ranking(directions=(*chosen.values(), *older))

    @staticmethod
    def load(run: RunFolder) -> Ranking:
        path = run.path / "directions.json"
        return Ranking.model_validate_json(path.read_bytes()) if path.exists() else Ranking()

    def save(self, run: RunFolder) -> None:
        write_text(run.path / "directions.json", self.model_dump_json(indent=1))


def check_direction(name: str, brief: Brief, earlier: Iterable[Candidate] = ()) -> None:
    """Refuse a draft of a direction that had its tries, or that the search must leave.

    Args:
        earlier: candidates of this round that were taken already.

    Raises:
        AgentError: it is closed; one sentence.
    """
    is_stalled = brief.stalled >= STALLED_BEFORE_NEW_DIRECTION
    if not name and is_stalled:
        raise AgentError(
            f"{brief.stalled} rounds brought no promotion: name the new direction that this takes"
        )
    if not name:
        return
    standing = standings(brief.trials).get(name)
    tries = (standing.tries if standing else 0) + sum(candidate.direction == name for candidate in earlier)
    if tries >= MAX_TRIES:
        raise AgentError(f"direction '{name}' has had its {MAX_TRIES} tries: take another")
    if standing and is_stalled:
        raise AgentError(
            f"{brief.stalled} rounds brought no promotion: leave '{name}' for a direction not tried yet"
        )
