"""A run's history as scored trials: what the tuner is told, the report shows and the rules count.

Measured score: speed-up over the task's baseline, geometric mean over the contract's workloads.
Jobs are chained through the incumbent, which every job measures again, so that a score is always
a product of ratios taken within one lease.

Static score, where nothing could be measured: a proxy from the compiled code alone. It ranks
candidates for a demonstration or a compile-only machine; it is never a claim about speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from kwiki_kernels.evaluation import Evaluation, StaticReport, Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import geomean_us, timings
from kwiki_agent.runs import RunFolder

BASELINE = "baseline"

WORTH_A_RULE = 1.01
"""A workload gets knobs of its own only if they beat the incumbent's there by more than 1 %."""

BYTES_IN_FLIGHT_NEEDED = 36 * 1024
"""Per SM: Little's law for 4.8 TB/s over 132 SMs at about 1 us under load."""


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
        return self.status not in (Status.PASSED, Status.UNMEASURED)


def history(run: RunFolder) -> list[Trial]:
    """All candidates in order of proposal, scored.

    Where anything was measured, static scores are left out: the two are no numbers of one kind.
    """
    measured = _measured_scores(run)
    trials = [_trial(run, candidate, measured) for candidate in run.candidates()]
    if any(trial.kind == "measured" for trial in trials):
        return [t if t.kind == "measured" else replace(t, score=None) for t in trials]
    return trials


def best(trials: list[Trial]) -> Trial | None:
    """The highest score; measured beats static."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda t: (t.kind == "measured", t.score), default=None)


def default_candidate(run: RunFolder, task: Task) -> str | None:
    """Id of the candidate that is the task's seed at its default point, or None where that was not tried."""
    if task.knob_space is None:
        return None
    default = {**task.knob_space.default, **run.contract.fixed_knobs}
    seeds = task.kernels.values()
    return next(
        (c.id for c in run.candidates() if c.knobs == default and not c.rules and c.source in seeds), None
    )


def static_score(reports: tuple[StaticReport, ...]) -> float | None:
    """Geometric mean over binaries of: bytes in flight per SM against what is needed, less spills. 0..1."""
    if not reports:
        return None
    return math.exp(sum(math.log(_one_static_score(report)) for report in reports) / len(reports))


def fastest_by_workload(run: RunFolder, incumbent: str | None) -> dict[str, str]:
    """Workload uuid to the candidate that was fastest on it, dispatching candidates left out.

    Times of different jobs are compared through the anchor that the jobs share, workload by workload.
    The incumbent keeps every workload on which nothing beat it by more than `WORTH_A_RULE`.
    """
    first: dict[str, dict[str, float]] = {}
    for job_id in run.judged_jobs():
        times = {
            name: {uuid: timing.median_us for uuid, timing in timings(verdict).items()}
            for name, verdict in run.evaluations(job_id).items()
        }
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
    eligible = {c.id: first[c.id] for c in run.candidates() if c.id in first and not c.rules}
    if incumbent not in eligible:
        return {}
    chosen = {}
    for uuid, standing in eligible[incumbent].items():
        name, fastest = min(
            ((name, times[uuid]) for name, times in eligible.items() if uuid in times),
            key=lambda item: item[1],
        )
        chosen[uuid] = name if fastest * WORTH_A_RULE < standing else incumbent
    return chosen


def _one_static_score(report: StaticReport) -> float:
    loaded_bytes = sum(bits // 8 * count for bits, count in report.global_load_bits.items())
    in_flight = report.ctas_per_sm * report.threads_per_cta * loaded_bytes
    spilled = report.spill_bytes + 16 * (report.local_loads + report.local_stores)
    return max(in_flight / (in_flight + BYTES_IN_FLIGHT_NEEDED) / (1.0 + spilled / 64.0), 1e-6)


def _trial(run: RunFolder, candidate: Candidate, measured: dict[str, tuple[float, str]]) -> Trial:
    if candidate.id in measured:
        score, job_id = measured[candidate.id]
        return Trial(candidate, Status.PASSED, score, "measured", job_id, "")
    verdict, judged_in = last_verdict(run, candidate.id)
    if verdict is None:
        return Trial(candidate, Status.UNMEASURED, None, "static", None, "")
    score_or_none = static_score(verdict.static_reports) if verdict.status is Status.UNMEASURED else None
    return Trial(candidate, verdict.status, score_or_none, "static", judged_in, verdict.log)


def last_verdict(run: RunFolder, candidate_id: str) -> tuple[Evaluation | None, str | None]:
    """The newest verdict on a candidate and its job; the build's verdict and None where no job judged it."""
    for job_id in reversed(run.judged_jobs()):
        if (verdict := run.evaluations(job_id).get(candidate_id)) is not None:
            return verdict, job_id
    return run.build(candidate_id), None


def _measured_scores(run: RunFolder) -> dict[str, tuple[float, str]]:
    """Candidate id to (score, job id), by chaining jobs through the anchors they share."""
    workloads = run.contract.workloads
    scores: dict[str, tuple[float, str]] = {BASELINE: (1.0, "")}
    for job_id in run.judged_jobs():
        verdicts = run.evaluations(job_id)
        anchor = next((verdicts[name] for name in (BASELINE, *reversed(scores)) if name in verdicts), None)
        for candidate_id, verdict in verdicts.items():
            if candidate_id in scores or not timings(verdict).keys() >= set(workloads):
                continue
            anchor = anchor or verdict
            anchor_score, _ = scores.setdefault(anchor.candidate_id, (1.0, job_id))
            ratio = geomean_us(anchor, workloads) / geomean_us(verdict, workloads)
            scores[candidate_id] = (anchor_score * ratio, job_id)
    return scores
