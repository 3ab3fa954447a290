"""What a run tells the wiki's ledger about the pages that led its candidates."""

from __future__ import annotations

from collections.abc import Iterator

from kwiki_ingest.lessons.ledger import record
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import Ratio, compare
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import default_candidate


def credit_cards(run: RunFolder, task: Task, wiki: Wiki) -> None:
    """Pages behind candidates were used; those behind a promotion over a rival helped.

    The first to lead has no rival: there a page helped where the task's default was measured beside it and
    was slower, outside the noise. A page hurt where nothing that it led to was promoted, and everything of
    it that was measured was slower than the incumbent of its day, outside the noise. It may do neither.
    """
    default = default_candidate(run, task)
    promoted = {
        line["candidate"]
        for line in run.lines("promotions.jsonl")
        if line["ratio"] or any(ratio.faster for ratio in _ratios(run, default, line["candidate"]))
    }
    led: dict[str, list[Candidate]] = {}
    for candidate in run.candidates():
        for card in candidate.cards:
            led.setdefault(card, []).append(candidate)
    helped = [card for card, candidates in led.items() if any(c.id in promoted for c in candidates)]
    hurt = [card for card in led if card not in helped and _only_slower(run, led[card])]
    record(wiki, "used", list(led), run=run.id)
    record(wiki, "helped", helped, run=run.id)
    record(wiki, "hurt", hurt, run=run.id)


def _only_slower(run: RunFolder, candidates: list[Candidate]) -> bool:
    """Whether each of them was slower than its parent in every job that timed both, and some job did."""
    outcomes = [ratio.slower for c in candidates for ratio in _ratios(run, c.parent, c.id)]
    return bool(outcomes) and all(outcomes)


def _ratios(run: RunFolder, before: str | None, after: str) -> Iterator[Ratio]:
    """One candidate against another, for each job that timed both."""
    if before is None:
        return
    for job_id in run.judged_jobs():
        verdict = run.evaluation(job_id, after)
        rival = run.evaluation(job_id, before) if verdict else None
        if verdict and rival and (ratio := compare(rival, verdict)):
            yield ratio
