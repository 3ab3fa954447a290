"""The verdict: every candidate of a job becomes an Evaluation, whatever it does to its process."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from kwiki_kernels.account import Account, account
from kwiki_kernels.audit import audit_source
from kwiki_kernels.contest import supervise
from kwiki_kernels.course import Course
from kwiki_kernels.device import Gpu, check_arch, environment, local_gpu
from kwiki_kernels.errors import MachineError, TaskError
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.examiner_client import ExaminerClient
from kwiki_kernels.held_out import with_held_out
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.lease import gpu_lease
from kwiki_kernels.messages import (
    Broken,
    Built,
    Done,
    Failed,
    Ready,
    Request,
)
from kwiki_kernels.task import Task, parse_task
from kwiki_kernels.verdict import Bench, Verdict, isolation_of, judge


@dataclass(frozen=True)
class Entry:
    """One to be judged."""

    candidate: Candidate
    baseline: bool


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
    began_s = time.monotonic()
    stop = stop or threading.Event()
    check_arch(job.arch)
    task = parse_task(job.task_files, {}, origin=f"job {job.id}")
    for uuid in job.workload_uuids:
        task.workload(uuid)
    entries = _entries(job, task)
    verdicts = dict(there or {})
    contests = _contests(job, entries, verdicts)
    gpu = local_gpu()
    why_not, machine = _unmeasured_on(gpu, job), environment(gpu)
    if why_not is None or job.stage == "check":
        job, task = with_held_out(job, task)
    workers = parallel_builds or len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="kernel-wiki-", ignore_cleanup_errors=True)
        parent = Path(stack.enter_context(scratch))
        examiner = None
        if contests and (job.stage == "check" or not why_not):
            client = ExaminerClient(job, task, machine, parent, stop, measure=not why_not)
            examiner = stack.enter_context(client)
        bench = Bench(job, task, machine, why_not, examiner, parent)
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
    return _unmeasured_on(local_gpu(), job)


def _unmeasured_on(gpu: Gpu | None, job: Job) -> str | None:
    if job.stage == "build":
        return "compiled only, as the job asks: nothing was measured"
    if job.stage == "check":
        return "not run: only modules with a run() run on the CPU"
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
    requests = [request_for(bench, entry) for entry in pending]
    ran = supervise(requests, bench.parent, stop, builds=workers, examiner=bench.examiner)
    courses = {entry.candidate.id: course for entry, course in zip(pending, ran, strict=True)}
    for course in courses.values():
        bench.spans.extend(course.spans)
        if broken := next((m for m in course.messages if isinstance(m, Broken)), None):
            raise MachineError(broken.log) if broken.machine else TaskError(broken.log)
        if not bench.why_not and course.said(Built) and not course.said(Ready, Failed, Done):
            client = ExaminerClient(bench.job, bench.task, bench.machine, bench.parent, stop, measure=True)
            with client as another, gpu_lease(stop):
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


def request_for(bench: Bench, entry: Entry) -> Request:
    """What a candidate's process may know: neither seed nor reference, nor what stands beside them."""
    job, task = bench.job, bench.task
    return Request(
        job=job.model_copy(update={"candidates": (), "task_files": {}, "seed": 0}),
        task=task.model_copy(
            update={
                "definition": task.definition.model_copy(update={"reference": None}),
                "reference": "",
                "baselines": {},
                "files": {},
            }
        ),
        candidate=entry.candidate,
        baseline=entry.baseline,
        measure=not bench.why_not,
        token=secrets.token_hex(),
        check=job.stage == "check",
    )


def _evaluation(bench: Bench, candidate: Candidate, course: Course, verdict: Verdict) -> Evaluation:
    machine = (bench.examiner and bench.examiner.environment) or bench.machine
    return Evaluation(
        candidate_id=candidate.id,
        code_hash=candidate.code_hash,
        task=bench.task.name,
        arch=bench.job.arch,
        status=verdict.status,
        log=verdict.log,
        results=verdict.results,
        static_reports=tuple(r for m in course.messages if isinstance(m, Built) for r in m.reports),
        environment=machine.model_copy(update={"isolation": isolation_of(course)}),
        seed=bench.job.seed,
        job_id=bench.job.id,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        build_s=round(course.build_s, 3),
        judge_s=round(sum(span.end_s - span.start_s for span in course.spans if span.what != "build"), 3),
    )


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
