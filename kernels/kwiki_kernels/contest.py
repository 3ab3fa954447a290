"""Candidates take turns on the GPU: one alone for a search, rivals round by round for a comparison."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kwiki_kernels.evaluation import Status
from kwiki_kernels.keeper import Child, Course
from kwiki_kernels.lease import gpu_lease
from kwiki_kernels.messages import Built, Command, Judged, Paused, Ready, Request
from kwiki_kernels.sensors import Reading, Sensors, conditions, disturbance
from kwiki_kernels.witness import Witness


def supervise(
    requests: Sequence[Request], stop: threading.Event, *, builds: int = 1, witness: Witness | None = None
) -> list[Course]:
    """Run the children of one contest to their end: all build, `builds` at a time, then take turns.

    Raises:
        MachineError: the GPU is not well after them, as the witness finds.
        Cancelled: `stop` was set meanwhile.
        OSError: no process can be started or no file written here.
    """
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(request, stop)) for request in requests]
        # Its threads must outlive the children: a child dies with the thread that has started it.
        pool = stack.enter_context(ThreadPoolExecutor(builds, thread_name_prefix="build"))
        list(pool.map(Child.build, children))
        measured = [child for child in children if child.request.measure and child.course.said(Built)]
        checked = [child for child in children if child.request.check and child.course.said(Built)]
        play(checked, None, ())
        with gpu_lease(stop) if measured else contextlib.nullcontext():
            if measured and witness:
                witness.open()
            play(measured, witness.sensors if witness else None, witness.pids if witness else ())
            # The lease ends only when they are gone: a hung kernel would spoil the next timing.
            for child in children:
                child.dismiss()
            if measured and witness:
                witness.expect_well()
        return [child.course for child in children]


def play(children: Sequence[Child], sensors: Sensors | None, ours: Sequence[int]) -> None:
    """All workloads of the job, one after the other, by all children that can still answer.

    `ours` are other processes of the judge that hold the GPU.
    """
    field = [child for child in children if child.ask(Command(do="open"), Ready)]
    for uuid in children[0].request.job.workload_uuids if children else ():
        prepare = Command(do="prepare", uuid=uuid)
        ready = [child for child in field if _builds(child, uuid) and child.ask(prepare, Paused)]
        going = take_turns(ready, uuid, sensors, [*ours, *(pid for child in field for pid in child.pids)])
        if any(disturbance(conditions(child.course.readings[uuid])) for child in going):
            going = take_turns(going, uuid, sensors, [*ours, *(pid for child in field for pid in child.pids)])
        for child in going:
            child.ask(Command(do="finish", uuid=uuid), Judged)
        for child in [child for child in field if _lost(child)]:
            child.dismiss()
            field.remove(child)


def take_turns(
    children: Sequence[Child], uuid: str, sensors: Sensors | None, ours: Sequence[int]
) -> list[Child]:
    """Each child's rounds on one workload, in the order A B C C B A; earlier readings are dropped.

    Returns those that did all rounds.
    """
    for child in children:
        child.course.readings[uuid] = []
    going = list(children)
    rounds = children[0].request.job.protocol.rounds if children else 0
    for number in range(rounds):
        command = Command(do="round", uuid=uuid, fresh=number == rounds - 1)
        for child in list(going if number % 2 == 0 else reversed(going)):
            if not child.ask(command, Paused):
                going.remove(child)
            elif sensors:
                child.course.readings[uuid] += _read(sensors, ours)
    return going


def _builds(child: Child, uuid: str) -> bool:
    return not any(
        uuid in message.failures for message in child.course.messages if isinstance(message, Built)
    )


def _lost(child: Child) -> bool:
    """Whether nothing after the last verdict could be believed: a CUDA error sticks to the context."""
    if child.course.over:
        return True
    judged = [message.result for message in child.course.messages if isinstance(message, Judged)]
    return child.request.measure and bool(judged) and judged[-1].status is Status.RUNTIME_ERROR


def _read(sensors: Sensors, ours: Sequence[int]) -> list[Reading]:
    with contextlib.suppress(OSError):
        return [sensors.read(ours)]
    return []
