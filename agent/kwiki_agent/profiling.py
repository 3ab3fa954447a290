"""What bounds a kernel: cheaply from its verdict each round, with the profilers once it has held its place.

Counting and tracing take a GPU for seconds and say little about code that will be another in the next round.
So the profilers run once for each incumbent that stood a round of rivals, on the largest workload.
"""

from __future__ import annotations

import json

from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.profile.diagnose import Diagnosis, diagnose
from kwiki_kernels.profile.metrics import metrics_of

from kwiki_agent.budget import timed
from kwiki_agent.judging import job_of
from kwiki_agent.loop import Loop
from kwiki_agent.profile_command import profile
from kwiki_agent.runs import RunFolder, write_text
from kwiki_agent.state import RunState
from kwiki_agent.trials import Trial, last_verdict


def diagnose_batch(loop: Loop, trials: list[Trial]) -> tuple[str, Diagnosis] | None:
    """The best candidate of the batch and what its verdict says; None where none has a score."""
    leader = max((t for t in trials if t.score is not None), key=lambda t: t.score or 0.0, default=None)
    verdict = last_verdict(loop.run, leader.candidate.id)[0] if leader else None
    if leader is None or verdict is None:
        return None
    return leader.candidate.id, diagnose(metrics_of(verdict))


def diagnose_incumbent(state: RunState, loop: Loop) -> tuple[str, Diagnosis] | None:
    """The incumbent and what the profilers say of it, once it stood a round; None while it may yet fall.

    What the profilers wrote and drew is in `profile/<candidate>/`. One that is missing here leaves a note.
    """
    incumbent = state.get("incumbent")
    local = loop.executor.name == "local" and loop.executor.measures(loop.contract.arch)
    if incumbent is None or state["stalled"] < 1 or not local:
        return None
    if (known := read_diagnosis(loop.run, incumbent)) is not None:
        return incumbent, known
    verdict, _ = last_verdict(loop.run, incumbent)
    largest = _largest(verdict) if verdict else None
    if largest is None:
        return None
    folder = loop.run.path / "profile" / incumbent
    job = job_of(state, loop, [incumbent], "judge").model_copy(
        update={"workload_uuids": (largest.results[0].uuid,), "held_out": 0}
    )
    with timed(loop.run, "judge", f"profile {incumbent}"):
        counters, pipeline, notes, _ = profile(
            job, largest, loop.task, counters_file=None, trace_file=None, capture=True, folder=folder,
            say=loop.say,
        )  # fmt: skip
    for note in notes:
        loop.say(f"profile: {note}")
    diagnosis = diagnose(metrics_of(largest, counters, pipeline), pipeline)
    write_text(folder / "diagnosis.json", diagnosis.model_dump_json(indent=1))
    return incumbent, diagnosis


def read_diagnosis(run: RunFolder, candidate_id: str) -> Diagnosis | None:
    """What the profilers said of a candidate, or None where they did not look at it."""
    path = run.path / "profile" / candidate_id / "diagnosis.json"
    return Diagnosis.model_validate(json.loads(path.read_bytes())) if path.exists() else None


def _largest(verdict: Evaluation) -> Evaluation | None:
    """The verdict on the workload that moves most, alone; None where nothing was timed."""
    timed_results = [result for result in verdict.results if result.timing is not None]
    if not timed_results:
        return None
    largest = max(timed_results, key=lambda result: result.bytes_moved or 0)
    return verdict.model_copy(update={"results": (largest,)})
