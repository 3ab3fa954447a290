"""A run's history as scored trials: what the tuner is told, the report shows and the rules count.

Measured score: speed-up over the task's baseline, geometric mean over the contract's workloads.
Jobs are chained through the incumbent, which every job measures again, so that a score is always
a product of ratios taken within one lease.

Static score, where nothing could be measured: a proxy from the compiled code alone. It ranks
candidates for a demonstration or a compile-only machine; it is never a claim about speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from kwiki_kernels.evaluation import Evaluation, Knobs, Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import offset_share
from kwiki_agent.contract import Contract
from kwiki_agent.digest import Digest, build_digest, digests
from kwiki_agent.runs import REVIEWS, RunFolder

BASELINE = "baseline"

LEAST_GAIN_OF_A_RULE = 0.01
OFFSETS_OF_A_RULE = 2.0
"""A workload gets knobs of its own only if they beat the incumbent's there by more than 1 %, and by more
than so many standard deviations of what two processes of one kernel differ by."""


@dataclass(frozen=True)
class Trial:
    """One candidate and what came of it. `score` is None where it failed; higher is better."""

    candidate: Candidate
    status: Status
    score: float | None
    kind: Literal["measured", "static"]
    job_id: str | None
    log: str

    @property
    def failed(self) -> bool:
        """Judged or built, and found wanting; not merely not measured."""
        return is_failure(self.status)


def is_failure(status: Status) -> bool:
    """Whether a verdict found the kernel wanting; not merely did not measure it."""
    return status not in (Status.PASSED, Status.UNMEASURED)


def history(run: RunFolder) -> list[Trial]:
    """All candidates in order of proposal, scored.

    Where anything was measured, static scores are left out: the two are no numbers of one kind.
    """
    measured, newest = _measured_scores(run), _newest(run)
    trials = [
        _trial(run, candidate, newest.get(candidate.id, (None, None)), measured.get(candidate.id))
        for candidate in run.candidates()
    ]
    if any(trial.kind == "measured" for trial in trials):
        return [t if t.kind == "measured" else replace(t, score=None) for t in trials]
    return trials


def best(trials: list[Trial]) -> Trial | None:
    """The highest score; measured beats static."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda t: (t.kind == "measured", t.score), default=None)


def trial_of(trials: Iterable[Trial], candidate_id: str | None) -> Trial | None:
    """The trial of a candidate, or None where there is none."""
    return next((trial for trial in trials if trial.candidate.id == candidate_id), None)


def default_knobs(contract: Contract, task: Task) -> Knobs:
    """The task's defaults, and over them what the contract fixes; what it fixes where there are no knobs."""
    return {**(task.knob_space.default if task.knob_space else {}), **contract.fixed_knobs}


def default_candidate(run: RunFolder, task: Task) -> str | None:
    """Id of the candidate that is the task's seed at its default point, or None where that was not tried."""
    if task.knob_space is None:
        return None
    default = default_knobs(run.contract, task)
    seeds = task.kernels.values()
    return next(
        (c.id for c in run.candidates() if c.knobs == default and not c.rules and c.source in seeds), None
    )


def fastest_by_workload(run: RunFolder, incumbent: str | None) -> dict[str, str]:
    """Workload uuid to the candidate that was fastest on it, dispatching candidates left out.

    Times of different jobs are compared through the anchor that the jobs share, workload by workload.
    The incumbent keeps every workload on which nothing is worth a rule.
    """
    first: dict[str, dict[str, float]] = {}
    for job_id in run.judged_jobs():
        times = {name: dict(digest.median_us) for name, digest in digests(run, job_id).items()}
        anchor = next(
            (name for name in (BASELINE, *reversed(first)) if name in times and name in first), None
        )
        for name, here in times.items():
            scale = (
                {u: first[anchor][u] / t for u, t in times[anchor].items() if u in first[anchor]}
                if anchor
                else {}
            )
            first.setdefault(name, {uuid: t * scale.get(uuid, 1.0) for uuid, t in here.items()})
    out = {line["candidate"] for line in run.lines(REVIEWS) if line["veto"]}
    out |= {name for name, (digest, _) in _newest(run).items() if is_failure(digest.status)}
    eligible = {
        c.id: first[c.id] for c in run.candidates() if c.id in first and not c.rules and c.id not in out
    }
    if incumbent not in eligible:
        return {}
    chosen = {}
    for uuid, standing in eligible[incumbent].items():
        name, fastest = min(
            ((name, times[uuid]) for name, times in eligible.items() if uuid in times),
            key=lambda item: item[1],
        )
        chosen[uuid] = name if _worth_a_rule(fastest, standing) else incumbent
    return chosen


def _worth_a_rule(fastest_us: float, standing_us: float) -> bool:
    offset = math.hypot(offset_share(fastest_us), offset_share(standing_us))
    return math.log(standing_us / fastest_us) > max(LEAST_GAIN_OF_A_RULE, OFFSETS_OF_A_RULE * offset)


def _newest(run: RunFolder) -> dict[str, tuple[Digest, str]]:
    """Candidate id to its newest verdict and the job that gave it."""
    newest: dict[str, tuple[Digest, str]] = {}
    for job_id in run.judged_jobs():
        newest |= {name: (digest, job_id) for name, digest in digests(run, job_id).items()}
    return newest


def _trial(
    run: RunFolder,
    candidate: Candidate,
    newest: tuple[Digest | None, str | None],
    measured: tuple[float, str] | None,
) -> Trial:
    """A score holds until a later job, on other values or workloads, finds the kernel wrong."""
    digest, judged_in = newest
    if measured and digest and not is_failure(digest.status):
        score, job_id = measured
        return Trial(candidate, Status.PASSED, score, "measured", job_id, "")
    digest = digest or build_digest(run, candidate.id)
    if digest is None:
        return Trial(candidate, Status.UNMEASURED, None, "static", None, "")
    return Trial(candidate, digest.status, digest.static_score, "static", judged_in, digest.log)


def last_verdict(run: RunFolder, candidate_id: str) -> tuple[Evaluation | None, str | None]:
    """The newest verdict on a candidate and its job; the build's verdict and None where no job judged it."""
    for job_id in reversed(run.judged_jobs()):
        if (verdict := run.evaluation(job_id, candidate_id)) is not None:
            return verdict, job_id
    return run.build(candidate_id), None


def _measured_scores(run: RunFolder) -> dict[str, tuple[float, str]]:
    """Candidate id to (score, job id), by chaining jobs through the anchors they share.

    A candidate that was timed on the representative workloads alone is scored by those.
    """
    contract = run.contract
    scores: dict[str, tuple[float, str]] = {BASELINE: (1.0, "")}
    screened: dict[str, tuple[float, str]] = {}
    for job_id in run.judged_jobs():
        verdicts = digests(run, job_id)
        anchor = next((verdicts[name] for name in (BASELINE, *reversed(scores)) if name in verdicts), None)
        for candidate_id, verdict in verdicts.items():
            timed = verdict.median_us.keys()
            if candidate_id in scores:
                continue
            if anchor and contract.representatives and timed == set(contract.representatives):
                ratio = anchor.geomean_us(timed) / verdict.geomean_us(timed)
                screened[candidate_id] = (scores[anchor.candidate_id][0] * ratio, job_id)
            if not timed >= set(contract.workloads):
                continue
            anchor = anchor or verdict
            anchor_score, _ = scores.setdefault(anchor.candidate_id, (1.0, job_id))
            ratio = anchor.geomean_us(contract.workloads) / verdict.geomean_us(contract.workloads)
            scores[candidate_id] = (anchor_score * ratio, job_id)
    return screened | scores
