"""What a run proves by measurement: pairs of candidates of one job, and how much faster one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kwiki_kernels.evaluation import Environment, Evaluation, Knobs
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent.compare import Ratio, compare, geomean_us
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import default_candidate

WORTH_TELLING = 1.02
"""A contrast below 2 % is not worth a reader's time."""
MOST_LESSONS_OF_A_KIND = 3


@dataclass(frozen=True)
class Contrast:
    """Two candidates measured in one job, and how much faster the second is."""

    worse: Candidate
    better: Candidate
    rejected: Knobs
    """The knobs in which they differ on these workloads, with the values of `worse`."""
    chosen: Knobs
    """The same knobs with the values of `better`."""
    unchanged: Knobs
    ratio: Ratio
    before_us: float
    after_us: float
    workloads: tuple[str, ...]
    environment: Environment
    """Where both were measured."""


def measured_contrasts(run: RunFolder, task: Task, incumbent: str) -> Iterator[Contrast]:
    """What this run proves: single knobs around the incumbent, the whole set, and shapes apart.

    Each contrast is measured within one job, with its whole 95 % interval above 1 and at least
    `WORTH_TELLING`.
    """
    candidates = {candidate.id: candidate for candidate in run.candidates()}
    best = candidates[incumbent]
    if best.rules:  # a dispatch stands on the candidate that was best before it
        best = candidates[best.parent or ""]
    default = task.knob_space.default if task.knob_space else {}
    yield from most_telling(_single_knob_contrasts(run, candidates, best), default)
    yield from _whole_set_contrast(run, candidates.get(default_candidate(run, task) or ""), best)
    yield from most_telling(_per_shape_contrasts(run, candidates, best), default)


def _single_knob_contrasts(
    run: RunFolder, candidates: dict[str, Candidate], best: Candidate
) -> Iterator[Contrast]:
    for verdicts in _jobs_with(run, best):
        for other_id in verdicts.keys() & candidates.keys():
            other = candidates[other_id]
            if other.source != best.source or other.rules:
                continue  # another text is another kernel, whatever its knobs
            if len(differing_knobs(best.knobs, other.knobs)) == 1:
                yield from _contrast(other, best, verdicts, run.contract.workloads)


def _whole_set_contrast(run: RunFolder, default: Candidate | None, best: Candidate) -> Iterator[Contrast]:
    """The best against the task's default, where one job measured both."""
    if default is None or default.source != best.source:
        return
    for verdicts in _jobs_with(run, best):
        if default.id in verdicts and len(differing_knobs(best.knobs, default.knobs)) > 1:
            yield from _contrast(default, best, verdicts, run.contract.workloads)
            return


def _per_shape_contrasts(
    run: RunFolder, candidates: dict[str, Candidate], best: Candidate
) -> Iterator[Contrast]:
    """Workloads on which a dispatch took other knobs than the best's, both measured in one job."""
    for dispatch in (candidate for candidate in candidates.values() if candidate.rules):
        for verdicts in _jobs_with(run, best):
            if dispatch.id in verdicts:
                for uuid in run.contract.workloads:
                    yield from _contrast(best, dispatch, verdicts, (uuid,))


def _contrast(
    worse: Candidate, better: Candidate, verdicts: dict[str, Evaluation], workloads: tuple[str, ...]
) -> Iterator[Contrast]:
    ratio = compare(verdicts[worse.id], verdicts[better.id], workloads=workloads)
    if ratio is None or not ratio.faster or ratio.value < WORTH_TELLING:
        return
    axes = {result.uuid: result.axes for result in verdicts[better.id].results}[workloads[0]]
    before, after = worse.knobs_for(axes), better.knobs_for(axes)
    differing = differing_knobs(before, after)
    before_us, after_us = (geomean_us(verdicts[side.id], workloads) for side in (worse, better))
    if differing:
        yield Contrast(
            worse=worse,
            better=better,
            rejected={name: before[name] for name in differing},
            chosen={name: after[name] for name in differing},
            unchanged={name: value for name, value in after.items() if name not in differing},
            ratio=ratio,
            before_us=before_us,
            after_us=after_us,
            workloads=workloads,
            environment=verdicts[better.id].environment,
        )


def most_telling(contrasts: Iterator[Contrast], default: Knobs) -> list[Contrast]:
    """The strongest contrast for each set of knobs: first those that beat the task's default, then the rest.

    That a default is right is worth less: whoever comes next starts from it anyway.
    """

    def rank(contrast: Contrast) -> tuple[bool, float]:
        beats_default = contrast.rejected.items() <= default.items()
        return not beats_default, -contrast.ratio.value

    strongest: dict[tuple[str, ...], Contrast] = {}
    for contrast in sorted(contrasts, key=rank):
        strongest.setdefault(tuple(contrast.chosen), contrast)
    return list(strongest.values())[:MOST_LESSONS_OF_A_KIND]


def differing_knobs(a: Knobs, b: Knobs) -> tuple[str, ...]:
    """Names of the knobs whose values differ."""
    return tuple(name for name in a if a[name] != b.get(name))


def _jobs_with(run: RunFolder, candidate: Candidate) -> Iterator[dict[str, Evaluation]]:
    for job_id in run.judged_jobs():
        verdicts = run.evaluations(job_id)
        if candidate.id in verdicts:
            yield verdicts
