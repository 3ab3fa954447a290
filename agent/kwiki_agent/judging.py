"""From candidates to verdicts: jobs for the builder and the executor, and the wait for their answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.executor import Executor
from kwiki_kernels.job import Job
from langgraph.types import interrupt

from kwiki_agent import __version__
from kwiki_agent.budget import timed
from kwiki_agent.compare import compare
from kwiki_agent.loop import Loop
from kwiki_agent.state import RunState

HELD_OUT = 3
"""Workloads off the list that a kernel is checked on: the tuner's at the end, those of others each time."""

Work = Literal["build", "glance", "judge"]
"""The jobs of a round, by names that sort in the order in which they run: verdicts are read in that order."""


def compile_here(state: RunState, loop: Loop, ids: Iterable[str]) -> list[Evaluation]:
    """Build-stage verdicts, recorded in the run folder."""
    with timed(loop.run, "build", f"round {state['round']}"):
        verdicts = _answer(loop.builder, job_of(state, loop, ids, "build"))
    for verdict in verdicts:
        loop.run.save_build(verdict)
    return verdicts


def judge(
    state: RunState, loop: Loop, ids: Iterable[str], *, work: Work = "judge", baselines: tuple[str, ...] = ()
) -> list[Evaluation]:
    """Verdicts of the executor, recorded in the run folder; interrupts the graph while they are not there."""
    job = job_of(state, loop, ids, work, baselines)
    loop.run.save_job(job)
    with timed(loop.run, "judge", f"round {state['round']}"):
        verdicts = _answer(loop.executor, job)
    loop.run.save_evaluations(job.id, verdicts)
    return verdicts


def screen(state: RunState, loop: Loop, survivors: list[str]) -> list[str]:
    """Those that are worth timing on all workloads: right on the representative ones, and not slower there.

    All of them where the contract names no representatives, where there is nothing to be slower than, and
    outside the search.
    """
    incumbent = state.get("incumbent")
    if not loop.contract.representatives or incumbent is None or state["phase"] != "search" or not survivors:
        return survivors
    verdicts = {v.candidate_id: v for v in judge(state, loop, [*survivors, incumbent], work="glance")}
    worthy = [name for name in survivors if _is_worthy(verdicts[incumbent], verdicts[name])]
    loop.say(f"screen: {len(worthy)} of {len(survivors)} go on to all workloads")
    return worthy


def job_id(state: RunState, loop: Loop, work: Work) -> str:
    """The name of this round's job; the same again after a kill."""
    return f"{loop.run.id}.r{state['round']:03d}.{work}"


def _is_worthy(incumbent: Evaluation, verdict: Evaluation) -> bool:
    if verdict.status is not Status.PASSED:
        return False
    ratio = compare(incumbent, verdict)
    return ratio is None or not ratio.slower


def job_of(
    state: RunState, loop: Loop, ids: Iterable[str], work: Work, baselines: tuple[str, ...] = ()
) -> Job:
    """This round's job for these candidates."""
    contract = loop.contract
    confirming = state["phase"] == "confirm" and work == "judge"
    held_out = HELD_OUT if state["phase"] == "confirm" or contract.policy != "tuner" else 0
    return Job(
        id=job_id(state, loop, work),
        task_files=loop.task.files,
        workload_uuids=contract.representatives if work == "glance" else contract.workloads,
        arch=contract.arch,
        candidates=tuple(loop.run.candidate(candidate_id) for candidate_id in dict.fromkeys(ids)),
        baselines=baselines,
        stage="build" if work == "build" else "judge",
        held_out=0 if work == "glance" else held_out,
        seed=loop.run.secret_seed(job_id(state, loop, work)),
        protocol=contract.protocol.interleaved() if confirming else contract.protocol,
        kernel_wiki_version=__version__,
    )


def _answer(executor: Executor, job: Job) -> list[Evaluation]:
    """Submit once, collect, and interrupt the graph while the answer is not there."""
    verdicts = executor.collect(job.id)
    if verdicts is None:
        executor.submit(job)
        verdicts = executor.collect(job.id)
    while verdicts is None:
        interrupt({"waiting_for": job.id, "executor": executor.name})
        verdicts = executor.collect(job.id)
    return verdicts
