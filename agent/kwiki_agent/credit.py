"""What a run tells the wiki's ledger about the pages that led its candidates."""

from __future__ import annotations

from collections.abc import Iterator

from kwiki_ingest.lessons.ledger import record
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import compare
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
        if line["ratio"] or _beat(run, line["candidate"], default)
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


def _beat(run: RunFolder, candidate_id: str, default: str | None) -> bool:
    """Whether some job timed it as faster than the default."""
    if default is None:
        return False
    for job_id in run.judged_jobs():
        before, after = (run.evaluation(job_id, each) for each in (default, candidate_id))
        if before and after and (ratio := compare(before, after)) and ratio.faster:
            return True
    return False


def _only_slower(run: RunFolder, candidates: list[Candidate]) -> bool:
    outcomes = [slower for candidate in candidates for slower in _against_parent(run, candidate)]
    return bool(outcomes) and all(outcomes)


def _against_parent(run: RunFolder, candidate: Candidate) -> Iterator[bool]:
    """Whether it was slower than its parent, for each job that timed both."""
    for job_id in run.judged_jobs():
        verdict = run.evaluation(job_id, candidate.id)
        parent = run.evaluation(job_id, candidate.parent) if verdict and candidate.parent else None
        if verdict and parent and (ratio := compare(parent, verdict)):
            yield ratio.slower
