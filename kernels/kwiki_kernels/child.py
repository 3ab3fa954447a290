"""One candidate in a process of its own: `python -m kwiki_kernels.child REQUEST.json FD`.

Builds without a CUDA context, tells the keeper (messages on file descriptor FD), then obeys its
commands on standard input one by one, and uses the GPU only while it carries out one. Whatever a
kernel does to this process, the keeper outlives it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from kwiki_kernels import driver
from kwiki_kernels.build import RUN, Build, BuildError, build_candidate, load_module, run_entry
from kwiki_kernels.errors import JudgeError, MachineError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.isolation import ALL, PROVEN_WITH_CUDA, PROVEN_WITH_LIBRARIES, Level, isolate
from kwiki_kernels.job import Candidate
from kwiki_kernels.messages import (
    Broken,
    Building,
    Built,
    Command,
    Confined,
    Done,
    Failed,
    Message,
    Ready,
    Request,
    Send,
)

PR_SET_PDEATHSIG = 1


def main(request_path: Path, fd: int) -> None:
    """Serve one request."""
    _bind_to_keeper(fd)
    request = Request.model_validate_json(request_path.read_bytes())
    request_path.unlink()  # the seed and the token stand in it

    def send(message: Message) -> None:
        os.write(fd, f"{request.token} {message.model_dump_json()}\n".encode())

    if request.measure:
        driver.load()  # it opens sockets and files that the levels below close
    try:
        send(Confined(isolation=isolate(_levels(request), Path.cwd() / request.folder)))
        if request.candidate is None:
            examine(request, send)
        else:
            contend(request, request.candidate, send)
        send(Done())
    except MachineError as error:
        send(Broken(machine=True, log=str(error)))
    except JudgeError as error:
        send(Broken(machine=False, log=str(error)))


def contend(request: Request, candidate: Candidate, send: Send) -> None:
    """Build, then do what is told on each workload where the request asks for it."""
    integrity = None
    if (request.measure or request.check) and not request.baseline:
        from kwiki_kernels.integrity import Integrity

        integrity = Integrity()
    try:
        builds = tuple(_builds(request, candidate, send))
    except BuildError as error:
        send(Failed(status=Status.COMPILE_ERROR, log=str(error)))
        return
    if request.measure:
        from kwiki_kernels.contestant import load_driver

        load_driver()  # seconds of host work that leave the GPU alone
    failures = {
        workload.uuid: f"{build.log}\n  while building {build.what}"
        for build in builds
        if build.launch is None
        for workload in build.workloads
    }
    runnable = tuple(build for build in builds if build.launch and _can_run(request, build))
    reports = tuple(report for build in builds for report in build.reports)
    notes = dict.fromkeys(build.log for build in builds if build.launch and build.log)
    send(
        Built(
            failures=failures,
            runnable=tuple(workload.uuid for build in runnable for workload in build.workloads),
            reports=reports,
            log="\n".join(notes),
        )
    )
    if runnable:
        from kwiki_kernels.contestant import Contestant

        contestant = Contestant(request, runnable, integrity, send)
        for command in _commands():
            contestant.obey(command)


def examine(request: Request, send: Send) -> None:
    """Serve as the process that knows the answers."""
    from kwiki_kernels.contestant import open_gpu
    from kwiki_kernels.examiner import Examiner

    examiner = Examiner(request, Path.cwd())
    for command in _commands():
        if command.do == "open":
            open_gpu()
            send(Ready())
        send(examiner.obey(command))


def _can_run(request: Request, build: Build) -> bool:
    """On the GPU all do; on the CPU only what is not compiled for a GPU."""
    return request.measure or (request.check and build.what == RUN)


def _builds(request: Request, candidate: Candidate, send: Send) -> Iterator[Build]:
    task = request.task
    workloads = tuple(task.workload(uuid) for uuid in request.job.workload_uuids)
    path = Path.cwd() / "kernel.py"
    if request.baseline:
        module = load_module(candidate.source, path)
        yield Build(RUN, workloads, run_entry(module, task.definition))
        return
    yield from build_candidate(
        candidate,
        task,
        workloads,
        arch=request.job.arch,
        path=path,
        building=lambda what: send(Building(what=what)),
    )


def _commands() -> Iterator[Command]:
    """What the keeper says, until it closes the pipe."""
    gc.freeze()  # what stands by now stays: a look at all of it between workloads takes 0.1 s and more
    for line in sys.stdin.buffer:
        yield Command.model_validate_json(line)


def _levels(request: Request) -> tuple[Level, ...]:
    asked = request.job.defences.isolation
    if asked is not None:
        return asked
    if not request.measure:
        return ALL
    return PROVEN_WITH_LIBRARIES if request.baseline else PROVEN_WITH_CUDA


def _bind_to_keeper(fd: int) -> None:
    """Die with the keeper, and lend the channel to nobody."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(fd, False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
