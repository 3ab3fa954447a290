"""The verdict: every candidate of a job becomes an Evaluation, whatever it does to its process."""

from __future__ import annotations

import datetime as dt
import os
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from kwiki_kernels.audit import audit_source
from kwiki_kernels.device import check_arch, environment, local_gpu
from kwiki_kernels.errors import MachineError, TaskError
from kwiki_kernels.evaluation import Environment, Evaluation, Status, WorkloadResult
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.keeper import Course, supervise
from kwiki_kernels.messages import (
    Broken,
    Built,
    Confined,
    Done,
    Failed,
    Judged,
    Measured,
    Ready,
    Request,
    Started,
)
from kwiki_kernels.task import Task, parse_task


@dataclass(frozen=True)
class Bench:
    """What all candidates of a job share."""

    job: Job
    task: Task
    machine: Environment
    why_not: str | None
    """Why nothing is measured here; None where it is."""


@dataclass(frozen=True)
class Verdict:
    """The outcome for one candidate."""

    status: Status
    log: str
    results: tuple[WorkloadResult, ...] = ()


def run_job(
    job: Job,
    *,
    parallel_builds: int | None = None,
    there: Mapping[str, Evaluation] | None = None,
    keep: Callable[[Evaluation], None] = lambda _: None,
    on_result: Callable[[Evaluation], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> list[Evaluation]:
    """Judge the baselines and candidates of a job, in the job's order.

    Builds run `parallel_builds` at a time (default: one per core); the GPU serves one candidate at
    a time. Verdicts that are already `there`, by candidate, are not reached again. `keep` and then
    `on_result` see each new verdict as it falls, on the calling thread. Setting `stop`, or Ctrl-C,
    kills every child before this raises.

    Raises:
        TaskError: the job's task or a workload of it cannot be read, or its reference fails.
        ArchError: the job's architecture is unknown.
        MachineError: the GPU does not answer, or the disk is full.
        Cancelled: `stop` was set.
    """
    stop = stop or threading.Event()
    check_arch(job.arch)
    task = parse_task(job.task_files, {}, origin=f"job {job.id}")
    for uuid in job.workload_uuids:
        task.workload(uuid)
    entries = _entries(job, task)
    verdicts = dict(there or {})
    todo = [entry for entry in entries if entry[0].id not in verdicts]
    why_not = unmeasured_because(job)
    machine = environment(local_gpu()) if why_not or not todo else measure_machine(job, stop)
    bench = Bench(job, task, machine, why_not)
    workers = parallel_builds or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="judge") as pool:
        try:
            futures = [
                pool.submit(evaluate, bench, candidate, baseline=baseline, stop=stop)
                for candidate, baseline in todo
            ]
            for future in as_completed(futures):
                verdict = future.result()
                verdicts[verdict.candidate_id] = verdict
                keep(verdict)
                on_result(verdict)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [verdicts[candidate.id] for candidate, _ in entries]


def unmeasured_because(job: Job) -> str | None:
    """Why this job is only compiled on this machine, in one sentence; None where it is measured."""
    if job.stage == "build":
        return "compiled only, as the job asks: nothing was measured"
    if job.stage == "check":
        return "not run: only modules with a run() run on the CPU"
    gpu = local_gpu()
    if gpu is None:
        return f"no GPU here: compiled for {job.arch}, nothing was measured"
    if gpu.arch != job.arch:
        return f"this GPU is an {gpu.name} ({gpu.arch}), the job is for {job.arch}: nothing was measured"
    return None


def measure_machine(job: Job, stop: threading.Event) -> Environment:
    """Copy bandwidth and timer floor of the GPU, in a process of its own.

    Raises:
        MachineError: the GPU does not answer.
    """
    request = Request(job=_bare(job), candidate=None, baseline=False, measure=True, token=secrets.token_hex())
    course = supervise(request, stop)
    for message in course.messages:
        if isinstance(message, Measured):
            return message.environment
    reason = "it did not answer in time" if course.timed_out else course.ending
    raise MachineError(f"the GPU cannot be used: {reason}. The process printed:\n{course.log}")


def evaluate(bench: Bench, candidate: Candidate, *, baseline: bool, stop: threading.Event) -> Evaluation:
    """The verdict on one candidate.

    Raises:
        TaskError: the task is at fault: its reference fails, or a scalar has no value.
        MachineError: the GPU no longer answers, not by this candidate's doing, or the disk is full.
        Cancelled: `stop` was set.
    """
    job, why_not = bench.job, bench.why_not
    if baseline and why_not:
        course, verdict = Course(), Verdict(Status.UNMEASURED, why_not)
    elif not baseline and job.defences.audit and (refusal := audit_source(candidate.source)):
        course, verdict = Course(), Verdict(Status.REJECTED, f"the kernel's text is refused: {refusal}")
    else:
        request = Request(
            job=_bare(job),
            candidate=candidate,
            baseline=baseline,
            measure=not why_not,
            token=secrets.token_hex(),
            check=job.stage == "check",
        )
        course = supervise(request, stop)
        if broken := next((m for m in course.messages if isinstance(m, Broken)), None):
            raise MachineError(broken.log) if broken.machine else TaskError(broken.log)
        if not why_not and course.said(Built) and not course.said(Ready, Failed, Done):
            measure_machine(job, stop)
        verdict = judge(course, bench, candidate)
    return Evaluation(
        candidate_id=candidate.id,
        code_hash=candidate.code_hash,
        task=bench.task.name,
        arch=job.arch,
        status=verdict.status,
        log=verdict.log,
        results=verdict.results,
        static_reports=tuple(r for m in course.messages if isinstance(m, Built) for r in m.reports),
        environment=bench.machine.model_copy(update={"isolation": _isolation(course)}),
        seed=job.seed,
        job_id=job.id,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        build_s=round(course.build_s, 3),
        judge_s=round(course.judge_s, 3),
    )


def judge(course: Course, bench: Bench, candidate: Candidate) -> Verdict:
    """Read a child's course: one result per workload, none where the candidate failed as a whole."""
    limits = bench.job.protocol
    for message in course.messages:
        if isinstance(message, Failed):
            return Verdict(message.status, message.log)
    if forged(course):
        return Verdict(Status.REJECTED, "the kernel wrote to the judge's result channel")
    built = next((message for message in course.messages if isinstance(message, Built)), None)
    if built is None:
        if course.timed_out:
            log = f"not built within {limits.build_timeout_s:g} s: stopped {course.doing}"
            return Verdict(Status.TIMEOUT, log)
        return Verdict(Status.RUNTIME_ERROR, _with_output(course.ending, course))
    judged = {m.result.uuid: m.result for m in course.messages if isinstance(m, Judged)}
    status, log = _ending(course, bench)
    results = []
    for uuid in bench.job.workload_uuids:
        if uuid in judged:
            results.append(_possible(judged[uuid], bench.job))
        elif uuid in built.failures:
            results.append(_unjudged(bench, candidate, uuid, Status.COMPILE_ERROR, built.failures[uuid]))
        else:
            results.append(_unjudged(bench, candidate, uuid, status, log))
            if not bench.why_not or status is not Status.UNMEASURED:
                status, log = Status.UNMEASURED, f"not run: the process ended on workload {uuid}"
    notes = [built.log] if built.log else []
    missed = [r for r in results if r.status is not Status.PASSED]
    if not missed:
        return Verdict(Status.PASSED, "\n".join(notes), tuple(results))
    failed = next((r for r in missed if r.status is not Status.UNMEASURED), missed[0])
    log = failed.log if failed.status is Status.UNMEASURED else f"workload {failed.uuid}: {failed.log}"
    return Verdict(failed.status, "\n".join([log, *notes]), tuple(results))


def _unjudged(bench: Bench, candidate: Candidate, uuid: str, status: Status, log: str) -> WorkloadResult:
    definition = bench.task.definition
    axes = definition.axis_values(bench.task.workload(uuid).axes)
    return WorkloadResult(
        uuid=uuid,
        axes=axes,
        knobs=candidate.knobs_for(axes),
        status=status,
        log=log,
        bytes_moved=None if bench.task.states_work else definition.bytes_moved(axes),
    )


def forged(course: Course) -> bool:
    """Whether messages came that the child cannot have sent: one too many, or out of turn."""
    letters = {Confined: "c", Built: "b", Ready: "r", Started: "s", Judged: "j", Done: "d"}
    turns = "".join(letters.get(type(message), "") for message in course.messages)
    started = [message.uuid for message in course.messages if isinstance(message, Started)]
    judged = [message.result.uuid for message in course.messages if isinstance(message, Judged)]
    in_turn = re.fullmatch("c?(b(r?(sj)*s?)d?)?", turns) is not None
    return not in_turn or judged != started[: len(judged)] or len(set(started)) < len(started)


def _possible(result: WorkloadResult, job: Job) -> WorkloadResult:
    """A time that no kernel can reach was not measured right, whoever is to blame."""
    timing, floor_us = result.timing, result.floor_us
    if timing is None or floor_us is None or not job.protocol.cold_l2 or timing.median_us >= floor_us:
        return result
    log = f"{timing.median_us:.3g} us is less than any kernel needs here: at least {floor_us:.3g} us"
    return result.model_copy(update={"status": Status.REJECTED, "log": log})


def _isolation(course: Course) -> tuple[str, ...]:
    return next((m.isolation for m in course.messages if isinstance(m, Confined)), ())


def _ending(course: Course, bench: Bench) -> tuple[Status, str]:
    """What the first workload without a result of its own died of."""
    if bench.why_not and (bench.job.stage != "check" or course.said(Done)):
        return Status.UNMEASURED, bench.why_not
    if course.timed_out:
        limit = bench.job.protocol.judge_timeout_s
        return Status.TIMEOUT, f"not judged within {limit:g} s: stopped {course.doing}"
    if course.said(Done):
        return Status.UNMEASURED, "not run: an earlier workload broke the GPU's context"
    return Status.RUNTIME_ERROR, _with_output(course.ending, course)


def _with_output(sentence: str, course: Course) -> str:
    return f"{sentence}; it printed last:\n{course.log}" if course.log else sentence


def _bare(job: Job) -> Job:
    return job.model_copy(update={"candidates": ()})


def _entries(job: Job, task: Task) -> list[tuple[Candidate, bool]]:
    """What to judge, and whether each is a baseline; these come first, as all else is read against them."""
    baselines = [
        Candidate(id=name, intent="what a candidate must beat", policy="baseline", source=text)
        for name, text in task.baselines.items()
    ]
    return [(b, True) for b in baselines if b.id in job.baselines] + [(c, False) for c in job.candidates]
