"""The external policy: another agent or a person proposes, and the graph waits for them.

What they hand in is written to the run folder first, one file a round, and read from there: a run that
is killed between the two goes on with what was handed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from kwiki_kernels.evaluation import Record
from kwiki_kernels.job import Candidate
from langgraph.types import interrupt

from kwiki_agent.policy import Brief
from kwiki_agent.policy.dispatch import dispatch_by_shape
from kwiki_agent.runs import RunFolder, write_text

SUBMISSION = "submission"
"""What a run under this policy waits for, where others wait for a job."""


class Submission(Record):
    """What was handed in for one round; no candidates say that no more will come."""

    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class External:
    """Waits in an interrupt of the graph for each round of the search; specialises by shape itself."""

    run: RunFolder
    name = "external"

    def propose(self, brief: Brief) -> list[Candidate]:
        """The candidates handed in for this round; interrupts the graph while there are none."""
        match brief.phase:
            case "search":
                while (submission := read_submission(self.run, brief.round + 1)) is None:
                    interrupt({"waiting_for": SUBMISSION})
                return list(submission.candidates)
            case "confirm":
                dispatch = dispatch_by_shape(brief, self.name)
                return [dispatch] if dispatch else []
            case _:
                return []


def write_submission(run: RunFolder, round_: int, submission: Submission) -> None:
    """Keep what was handed in for a round, the first of which is 1."""
    write_text(run.submission(round_), submission.model_dump_json(indent=1))


def read_submission(run: RunFolder, round_: int) -> Submission | None:
    """What was handed in for a round, or None."""
    path = run.submission(round_)
    return Submission.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None
