"""Candidates take turns on the GPU: one alone for a search, rivals round by round for a comparison."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from kwiki_kernels.bout import Bout
from kwiki_kernels.course import Course
from kwiki_kernels.examiner_client import ExaminerClient
from kwiki_kernels.keeper import Child
from kwiki_kernels.lease import gpu_lease, quiet, unquiet
from kwiki_kernels.messages import Built, Command, Ready, Request

Hush = Callable[[], AbstractContextManager[None]]


def supervise(
    requests: Sequence[Request],
    parent: Path,
    stop: threading.Event,
    *,
    builds: int = 1,
    examiner: ExaminerClient | None = None,
) -> list[Course]:
    """Run the children of one contest to their end: all build, `builds` at a time, then take turns.

    Args:
        parent: the folder that the children's own lie in.
        examiner: needed where a request goes on after the build.

    Raises:
        TaskError: the task is at fault, as the examiner finds.
        MachineError: the GPU is not well after them, as the examiner finds.
        Cancelled: `stop` was set meanwhile.
        OSError: no process can be started or no file written here.
    """
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(request, parent, stop)) for request in requests]
        # Its threads must outlive the children: a child dies with the thread that has started it.
        pool = stack.enter_context(ThreadPoolExecutor(builds, thread_name_prefix="build"))
        list(pool.map(Child.build, children))
        ready = [child for child in children if child.course.said(Built)]
        if examiner and examiner.measure and ready:
            compete(ready, examiner, stop)
        elif examiner:
            play([child for child in ready if _opens(child)], examiner)
        for child in children:
            child.dismiss()
        return [child.course for child in children]


def compete(children: Sequence[Child], examiner: ExaminerClient, stop: threading.Event) -> None:
    """Play on the GPU. Contexts come and go between workloads of others; all else needs the lease.

    Raises, as `supervise`.
    """
    with examiner.seat(children):
        with unquiet(stop):
            field = [child for child in children if _opens(child)]
        with gpu_lease(stop):
            if examiner.environment is None:
                with quiet(stop):
                    examiner.open()
            play(field, examiner, lambda: quiet(stop))
            with quiet(stop):
                if not examiner.is_well():
                    for child in children:  # one of them may have left something running
                        child.dismiss()
                    examiner.expect_well()
    with unquiet(stop):  # while the next but one makes its context
        for child in children:
            child.dismiss()


def play(children: Sequence[Child], examiner: ExaminerClient, hush: Hush = contextlib.nullcontext) -> None:
    """All workloads of the job, one after the other, by all children that can still answer; `hush` makes
    what all rounds on a workload are timed in. Who waits for it, to make or destroy a context, gets it
    while nothing is timed for longest."""
    field = list(children)
    for uuid in children[0].request.job.workload_uuids if children else ():
        bouts = [Bout(child, examiner, uuid) for child in field if _runs(child, uuid)]
        for bout in bouts:
            bout.child.course.workload = uuid
        going = [bout for bout in bouts if bout.prepare()]
        with hush():
            going = take_turns(going, examiner)
            if any(bout.disturbed for bout in going):
                going = take_turns(going, examiner)
        for bout in going:
            bout.finish()
        for bout in bouts:
            bout.leave()
        field = [child for child in field if not child.gone]


def take_turns(bouts: Sequence[Bout], examiner: ExaminerClient) -> list[Bout]:
    """Everybody's rounds on one workload, in the order A B C C B A; gives back those that did them all."""
    going = list(bouts)
    rounds = bouts[0].protocol.rounds if bouts else 0
    for bout in bouts:
        bout.begin_rounds()
    for number in range(rounds):
        for bout in list(going if number % 2 == 0 else reversed(going)):
            if not (bout.refresh(last=number == rounds - 1) and bout.round()):
                going.remove(bout)
            elif examiner.sensors:
                bout.read(examiner.sensors, examiner.holders)
    return going


def _opens(child: Child) -> bool:
    with child.course.clocked("open"):
        return child.ask(Command(do="open"), Ready) is not None


def _runs(child: Child, uuid: str) -> bool:
    built = (message for message in child.course.messages if isinstance(message, Built))
    return any(uuid in message.runnable for message in built)
