"""From what a child said and what the examiner found to the verdict on a candidate."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from kwiki_kernels.course import Course, Span
from kwiki_kernels.evaluation import Environment, Status, WorkloadResult
from kwiki_kernels.examiner_client import ExaminerClient
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.messages import Built, Confined, Done, Failed, Fell, Paused, Ready, Timed
from kwiki_kernels.task import Task


@dataclass(frozen=True)
class Bench:
    """What all candidates of a job share."""

    job: Job
    task: Task
    machine: Environment
    """As far as it shows without running anything on it."""
    why_not: str | None
    """Why nothing is measured here; None where it is."""
    examiner: ExaminerClient | None = None
    """None where nothing is run."""
    parent: Path = Path()
    """Of the folders of all children."""
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """The outcome for one candidate."""

    status: Status
    log: str
    results: tuple[WorkloadResult, ...] = ()


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
    status, log = _ending(course, bench)
    results = []
    for uuid in bench.job.workload_uuids:
        if uuid in course.results:
            results.append(_possible(course.results[uuid], bench.job))
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
    letters = {Confined: "c", Built: "b", Ready: "r", Paused: "a", Timed: "a", Fell: "a", Done: "d"}
    turns = "".join(letters.get(type(message), "") for message in course.messages)
    in_turn = re.fullmatch("c?(b(ra*)?d?)?", turns) is not None
    return not in_turn or turns.count("a") > course.asked


def _possible(result: WorkloadResult, job: Job) -> WorkloadResult:
    """A time that no kernel can reach was not measured right, whoever is to blame."""
    timing, floor_us = result.timing, result.floor_us
    if timing is None or floor_us is None or not job.protocol.cold_l2 or timing.median_us >= floor_us:
        return result
    log = f"{timing.median_us:.3g} us is less than any kernel needs here: at least {floor_us:.3g} us"
    return result.model_copy(update={"status": Status.REJECTED, "log": log})


def isolation_of(course: Course) -> tuple[str, ...]:
    """What the child was confined by."""
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
