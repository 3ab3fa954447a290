"""Specialising by shape, which comes last: one kernel that takes other knobs on other workloads."""

from __future__ import annotations

from kwiki_kernels.job import Candidate, Rule

from kwiki_agent.policy import Brief, candidate_id


def dispatch_by_shape(brief: Brief, policy: str) -> Candidate | None:
    """The incumbent's kernel with, on each workload, the knobs that were fastest there.

    None where one set of knobs was fastest everywhere. Candidates of another text than the incumbent's
    do not count: rules choose knobs, not kernels.
    """
    by_id = {trial.candidate.id: trial.candidate for trial in brief.trials}
    if brief.incumbent is None:
        return None
    incumbent = by_id[brief.incumbent]
    fastest = {
        uuid: by_id[candidate] if by_id[candidate].source == incumbent.source else incumbent
        for uuid, candidate in brief.best_per_workload.items()
    }
    if len({candidate.id for candidate in fastest.values()}) < 2:
        return None
    points = [
        (brief.task.definition.axis_values(brief.task.workload(uuid).axes), candidate.knobs)
        for uuid, candidate in fastest.items()
    ]
    points.sort(key=lambda point: tuple(sorted(point[0].items())))
    return Candidate(
        id=candidate_id(len(brief.trials) + 1),
        parent=incumbent.id,
        intent="dispatch by shape: on each workload the knobs that were fastest there",
        policy=policy,
        source=incumbent.source,
        knobs=incumbent.knobs,
        rules=tuple(Rule(axes=axes, knobs=knobs) for axes, knobs in points),
    )
