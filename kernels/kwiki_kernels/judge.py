"""The verdict: every candidate of a job becomes an Evaluation, whatever it does to its process."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from kwiki_kernels.account import Account, account
from kwiki_kernels.audit import audit_source
from kwiki_kernels.contest import supervise
from kwiki_kernels.device import check_arch, environment, local_gpu
from kwiki_kernels.errors import MachineError, TaskError
from kwiki_kernels.evaluation import Environment, Evaluation, Status, WorkloadResult
from kwiki_kernels.held_out import with_held_out
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.keeper import Course, Span
from kwiki_kernels.lease import gpu_lease
from kwiki_kernels.messages import (
    Broken,
    Built,
    Confined,
    Done,
    Failed,
    Judged,
    Paused,
    Ready,
    Request,
    Started,
)
from kwiki_kernels.sensors import conditions, disturbance
from kwiki_kernels.task import Task, parse_task
from kwiki_kernels.witness import Witness


@dataclass(frozen=True)
class Bench:
    """What all candidates of a job share."""

    job: Job
    task: Task
    machine: Environment
    """As far as it shows without running anything on it."""
    why_not: str | None
    """Why nothing is measured here; None where it is."""
    witness: Witness | None = None
    """None where nothing is measured."""
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class Entry:
    """One to be judged."""

    candidate: Candidate
    baseline: bool


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
    on_account: Callable[[Account], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> list[Evaluation]:
    """Judge the baselines and candidates of a job, in the job's order.

    Builds run `parallel_builds` at a time (default: one per core); the GPU serves one candidate at
    a time, to its end or, where the protocol interleaves, for one round. Verdicts that are already
    `there`, by candidate, are not reached again; those of an interleaved job fall together and are
    reached again unless all are there. `keep` and then `on_result` see each new verdict as it falls,
    on the calling thread, and `on_account` where the time went. Setting `stop`, or Ctrl-C, kills every
    child before this raises.

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
    contests = _contests(job, entries, verdicts)
    why_not = unmeasured_because(job)
    if why_not is None or job.stage == "check":
        job, task = with_held_out(job, task)
    workers = parallel_builds or len(os.sched_getaffinity(0))
    began_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        witness = None if why_not or not contests else stack.enter_context(Witness(job, stop))
        bench = Bench(job, task, environment(local_gpu()), why_not, witness)
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=workers, thread_name_prefix="judge"))
        try:
            futures = [pool.submit(evaluate, bench, contest, workers, stop) for contest in contests]
            for future in as_completed(futures):
                for verdict in future.result():
                    verdicts[verdict.candidate_id] = verdict
                    keep(verdict)
                    on_result(verdict)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    on_account(account(bench.spans, began_s, time.monotonic()))
    return [verdicts[entry.candidate.id] for entry in entries]


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


def evaluate(bench: Bench, contest: list[Entry], workers: int, stop: threading.Event) -> list[Evaluation]:
    """The verdicts on those that contend together; a single one as a rule.

    Raises:
        TaskError: the task is at fault: its reference fails, or a scalar has no value.
        MachineError: the GPU no longer answers, or not as it did, or the disk is full.
        Cancelled: `stop` was set.
    """
    settled = {entry.candidate.id: verdict for entry in contest if (verdict := _beforehand(bench, entry))}
    pending = [entry for entry in contest if entry.candidate.id not in settled]
    requests = [_request(bench.job, entry, measure=not bench.why_not) for entry in pending]
    ran = supervise(requests, stop, builds=workers, witness=bench.witness)
    courses = {entry.candidate.id: course for entry, course in zip(pending, ran, strict=True)}
    for course in courses.values():
        bench.spans.extend(course.spans)
        if broken := next((m for m in course.messages if isinstance(m, Broken)), None):
            raise MachineError(broken.log) if broken.machine else TaskError(broken.log)
        if bench.witness and course.said(Built) and not course.said(Ready, Failed, Done):
            with Witness(bench.job, stop) as another, gpu_lease(stop):
                another.open()  # raises where no process gets onto this GPU
    evaluations = []
    for entry in contest:
        candidate = entry.candidate
        course = courses.get(candidate.id, Course())
        verdict = settled.get(candidate.id) or judge(course, bench, candidate)
        evaluations.append(_evaluation(bench, candidate, course, verdict))
    return evaluations


def _beforehand(bench: Bench, entry: Entry) -> Verdict | None:
    """The verdict on what needs no process."""
    if entry.baseline:
        return Verdict(Status.UNMEASURED, bench.why_not) if bench.why_not else None
    refusal = audit_source(entry.candidate.source) if bench.job.defences.audit else None
    return Verdict(Status.REJECTED, f"the kernel's text is refused: {refusal}") if refusal else None


def _request(job: Job, entry: Entry, *, measure: bool) -> Request:
    return Request(
        job=job.model_copy(update={"candidates": ()}),
        candidate=entry.candidate,
        baseline=entry.baseline,
        measure=measure,
        token=secrets.token_hex(),
        check=job.stage == "check",
    )


def _evaluation(bench: Bench, candidate: Candidate, course: Course, verdict: Verdict) -> Evaluation:
    machine = (bench.witness and bench.witness.environment) or bench.machine
    return Evaluation(
        candidate_id=candidate.id,
        code_hash=candidate.code_hash,
        task=bench.task.name,
        arch=bench.job.arch,
        status=verdict.status,
        log=verdict.log,
        results=verdict.results,
        static_reports=tuple(r for m in course.messages if isinstance(m, Built) for r in m.reports),
        environment=machine.model_copy(update={"isolation": _isolation(course)}),
        seed=bench.job.seed,
        job_id=bench.job.id,
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
            told = _with_conditions(judged[uuid], course, limits.rounds)
            results.append(_possible(told, bench.job))
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
    definition, workload = bench.task.definition, bench.task.workload(uuid)
    axes = definition.axis_values(workload.axes)
    return WorkloadResult(
        uuid=uuid,
        axes=axes,
        knobs=candidate.knobs_for(axes),
        held_out=workload.held_out,
        status=status,
        log=log,
        bytes_moved=None if bench.task.states_work else definition.bytes_moved(axes),
    )


def forged(course: Course) -> bool:
    """Whether messages came that the child cannot have sent: one too many, or out of turn."""
    letters = {Confined: "c", Built: "b", Ready: "r", Started: "s", Paused: "p", Judged: "j", Done: "d"}
    turns = "".join(letters.get(type(message), "") for message in course.messages)
    started = [message.uuid for message in course.messages if isinstance(message, Started)]
    judged = [message.result.uuid for message in course.messages if isinstance(message, Judged)]
    in_turn = re.fullmatch("c?(b(r(sp*j)*(sp*)?)?d?)?", turns) is not None
    answers = turns.count("p") + turns.count("j")
    repeated = len(set(started)) < len(started)
    return not in_turn or answers > course.asked or judged != started[: len(judged)] or repeated


def _with_conditions(result: WorkloadResult, course: Course, rounds: int) -> WorkloadResult:
    """Add how the GPU was. Disturbed rounds were repeated: the last ones count, good or bad."""
    if result.timing is None:
        return result
    found = conditions(course.readings.get(result.uuid, ()))
    update = {
        "device_us": result.timing.device_us[-rounds:],
        "conditions": found,
        "disturbed": disturbance(found),
    }
    return result.model_copy(update={"timing": result.timing.model_copy(update=update)})


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


def _entries(job: Job, task: Task) -> list[Entry]:
    """What to judge; baselines come first, as all else is read against them."""
    baselines = [
        Candidate(id=name, intent="what a candidate must beat", policy="baseline", source=text)
        for name, text in task.baselines.items()
    ]
    return [
        *(Entry(b, baseline=True) for b in baselines if b.id in job.baselines),
        *(Entry(c, baseline=False) for c in job.candidates),
    ]


def _contests(job: Job, entries: list[Entry], there: Mapping[str, Evaluation]) -> list[list[Entry]]:
    """Who is judged together, of those without a verdict: figures of two leases are not to be compared."""
    missing = [entry for entry in entries if entry.candidate.id not in there]
    if job.protocol.order == "sequential":
        return [[entry] for entry in missing]
    return [entries] if missing else []
