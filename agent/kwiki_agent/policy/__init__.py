"""Who proposes candidates. A policy sees what was tried and which cards were retrieved, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kwiki_ingest.lessons.disputes import Dispute
from kwiki_kernels.evaluation import Evaluation, Record
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import Ratio
from kwiki_agent.contract import Contract
from kwiki_agent.state import Card, Phase
from kwiki_agent.trials import Trial


@dataclass(frozen=True)
class Brief:
    """Everything a policy may know when it proposes."""

    contract: Contract
    task: Task
    phase: Phase
    round: int
    trials: tuple[Trial, ...]
    incumbent: str | None
    cards: tuple[Card, ...]
    stalled: int
    """Rounds in a row without a promotion; from two on, another direction is due."""
    best_per_workload: dict[str, str]
    """Workload uuid to the id of the candidate that was fastest on it."""
    disputes: tuple[Dispute, ...] = ()
    """Open questions of the wiki about this operator and architecture, when the phase can decide them."""


class NothingProposedError(Exception):
    """A round brought no candidate, and the next one may: the message says why. It counts as stalled."""


class Policy(Protocol):
    """Proposes up to `contract.batch` candidates; none means it has nothing left to try."""

    name: str

    def propose(self, brief: Brief) -> list[Candidate]: ...


class Case(Record):
    """What a reviewer sees of a promotion."""

    candidate: Candidate
    before: str
    """The text it replaces: the incumbent's, or the seed's."""
    evaluation: Evaluation
    incumbent: Evaluation | None
    ratio: Ratio | None


class Review(Record):
    """What came of it. `note` says why there is no verdict where there is none."""

    round: int
    candidate: str
    veto: bool
    reason: str
    note: str = ""


class Reviewer(Protocol):
    """Looks at what the rule promotes; may veto it, and can do nothing else."""

    def review(self, case: Case, round_: int) -> Review: ...


STALLED_BEFORE_NEW_DIRECTION = 2
"""After this many rounds without a promotion a policy must leave the direction it was going."""


def candidate_id(number: int) -> str:
    """The id of the n-th candidate of a run, from 1; ids sort in order of proposal."""
    return f"c{number:04d}"
