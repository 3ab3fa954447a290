"""What edits of a kernel's text were worth: a candidate against the one it started from, in one job.

The author's intent names the edit and the measurement says what it brought. Whether it was the edit as
intended that brought it, nobody has shown: such a lesson stays a candidate until another run agrees.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from kwiki_kernels.evaluation import Environment
from kwiki_kernels.job import Candidate

from kwiki_agent.compare import Ratio, compare, geomean_us
from kwiki_agent.contrasts import MOST_LESSONS_OF_A_KIND, WORTH_TELLING
from kwiki_agent.runs import RunFolder

SHOWN_DIFF_LINES = 80


@dataclass(frozen=True)
class Edit:
    """A candidate of another text than its parent's, both timed on all workloads of one job."""

    parent: Candidate
    child: Candidate
    ratio: Ratio
    """Time of the parent over time of the child."""
    before_us: float
    after_us: float
    environment: Environment

    @property
    def helped(self) -> bool:
        return self.ratio.faster

    @property
    def diff(self) -> str:
        """The change of the text, its first lines."""
        lines = list(
            difflib.unified_diff(
                self.parent.source.splitlines(), self.child.source.splitlines(),
                self.parent.id, self.child.id, lineterm="", n=1,
            )
        )  # fmt: skip
        if len(lines) > SHOWN_DIFF_LINES:
            lines[SHOWN_DIFF_LINES:] = [f"... and {len(lines) - SHOWN_DIFF_LINES} lines more"]
        return "\n".join(lines)


def telling_edits(run: RunFolder) -> list[Edit]:
    """What moved the time most outside the noise: up to three edits that helped, as many that hurt."""
    edits = list(_edits(run))
    helped = sorted((e for e in edits if e.ratio.faster), key=lambda e: -e.ratio.value)
    hurt = sorted((e for e in edits if e.ratio.slower), key=lambda e: e.ratio.value)
    return [*helped[:MOST_LESSONS_OF_A_KIND], *hurt[:MOST_LESSONS_OF_A_KIND]]


def _edits(run: RunFolder) -> Iterator[Edit]:
    candidates = {candidate.id: candidate for candidate in run.candidates()}
    workloads = run.contract.workloads
    seen: set[str] = set()
    for job_id in run.judged_jobs():
        verdicts = run.evaluations(job_id)
        for child_id in verdicts.keys() & candidates.keys() - seen:
            child = candidates[child_id]
            parent = candidates.get(child.parent or "")
            if parent is None or parent.id not in verdicts or parent.source == child.source:
                continue
            ratio = compare(verdicts[parent.id], verdicts[child_id], workloads=workloads)
            if ratio is None or not child.intent or 1 / WORTH_TELLING < ratio.value < WORTH_TELLING:
                continue
            seen.add(child_id)
            yield Edit(
                parent=parent,
                child=child,
                ratio=ratio,
                before_us=geomean_us(verdicts[parent.id], workloads),
                after_us=geomean_us(verdicts[child_id], workloads),
                environment=verdicts[child_id].environment,
            )
