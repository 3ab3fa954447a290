"""One candidate in a process of its own: `python -m kwiki_kernels.child REQUEST.json FD`.

Builds without a CUDA context, tells the keeper (messages on file descriptor FD), waits for its
word on standard input, then checks and times every workload on the GPU. Whatever a kernel does to
this process, the keeper outlives it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kwiki_kernels.audit import OwnKernels
from kwiki_kernels.build import RUN, Build, BuildError, build_candidate, load_module, run_entry
from kwiki_kernels.device import environment, local_gpu
from kwiki_kernels.errors import JudgeError, MachineError, TooLargeError
from kwiki_kernels.evaluation import Record, Status, WorkloadResult
from kwiki_kernels.isolation import ALL, PROVEN_WITH_CUDA, Level, isolate
from kwiki_kernels.job import Candidate
from kwiki_kernels.messages import (
    GO,
    Broken,
    Building,
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

if TYPE_CHECKING:  # both need torch
    from kwiki_kernels.integrity import Integrity
    from kwiki_kernels.trial import Trial

PR_SET_PDEATHSIG = 1

Send = Callable[[Record], None]


def main(request_path: Path, fd: int) -> None:
    """Serve one request."""
    _bind_to_keeper(fd)
    request = Request.model_validate_json(request_path.read_bytes())
    request_path.unlink()  # the seed and the token stand in it

    def send(message: Record) -> None:
        os.write(fd, f"{request.token} {message.model_dump_json()}\n".encode())

    try:
        send(Confined(isolation=isolate(_levels(request), Path.cwd())))
        if request.candidate is None:
            _wait_for_gpu(send)
            measure_machine(request, send)
        else:
            judge_candidate(request, request.candidate, send)
        send(Done())
    except MachineError as error:
        send(Broken(machine=True, log=str(error)))
    except JudgeError as error:
        send(Broken(machine=False, log=str(error)))


def judge_candidate(request: Request, candidate: Candidate, send: Send) -> None:
    """Build, then check and time each workload where the request asks for it."""
    job = request.job
    task = parse_task(job.task_files, {}, origin=f"job {job.id}")
    integrity = None
    if (request.measure or request.check) and not request.baseline:
        from kwiki_kernels.integrity import Integrity

        integrity = Integrity()
    try:
        builds = tuple(_builds(request, candidate, task, send))
    except BuildError as error:
        send(Failed(status=Status.COMPILE_ERROR, log=str(error)))
        return
    if request.measure:
        import torch  # noqa: F401 - seconds of host work that need no GPU yet
    failures = {
        workload.uuid: f"{build.log}\n  while building {build.what}"
        for build in builds
        if build.launch is None
        for workload in build.workloads
    }
    reports = tuple(report for build in builds for report in build.reports)
    notes = dict.fromkeys(build.log for build in builds if build.launch and build.log)
    send(Built(failures=failures, reports=reports, log="\n".join(notes)))
    if request.measure and any(build.launch for build in builds):
        _wait_for_gpu(send)
        if integrity:
            integrity.see_context()
        for result in _judge_workloads(request, candidate, task, builds, "cuda", send):
            send(Judged(result=_unbroken(result, integrity)))
    elif request.check:
        runnable = tuple(build for build in builds if build.launch and build.what == RUN)
        for result in _judge_workloads(request, candidate, task, runnable, "cpu", send):
            send(Judged(result=_unbroken(_checked_only(result), integrity)))


def measure_machine(request: Request, send: Send) -> None:
    """The figures that every timing of this job is read against."""
    from kwiki_kernels import timing

    copy_gbps = timing.copy_gbps(request.job.protocol)
    gpu = local_gpu()  # asked now, while the clock is still up from the copies
    here = environment(gpu)
    figures = {
        "versions": here.versions | {"cuda": timing.cuda_version()},
        "sm_clock_mhz": gpu.sm_clock_mhz if gpu else None,
        "copy_gbps": copy_gbps,
        "timer_floor_us": timing.timer_floor_us(request.job.protocol),
    }
    send(Measured(environment=here.model_copy(update=figures)))


def _builds(request: Request, candidate: Candidate, task: Task, send: Send) -> Iterator[Build]:
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


def _judge_workloads(
    request: Request,
    candidate: Candidate,
    task: Task,
    builds: tuple[Build, ...],
    device: str,
    send: Send,
) -> Iterator[WorkloadResult]:
    import torch

    from kwiki_kernels.terms import load_reference
    from kwiki_kernels.trial import Trial, check_room, release

    reference, terms = load_reference(task, Path.cwd())
    launches = {workload.uuid: build.launch for build in builds for workload in build.workloads}
    for uuid in request.job.workload_uuids:
        launch = launches.get(uuid)
        if launch is None:
            continue
        send(Started(uuid=uuid))
        workload = task.workload(uuid)
        trial = None
        try:
            if device != "cpu":
                check_room(task.definition, workload, torch.cuda.mem_get_info()[0])
            trial = Trial(
                launch,
                task.definition,
                workload,
                reference=reference,
                seed=request.job.seed,
                device=device,
                terms=terms,
                watch_each_call=request.job.defences.each_call and not request.baseline,
            )
            result = trial.judge(request.job.protocol, Path.cwd() / "kernel.py")
            if request.job.defences.kernel_names and not request.baseline:
                result = _by_own_kernels(result, candidate, trial)
        except TooLargeError as error:
            result = WorkloadResult(
                uuid=uuid,
                axes=task.definition.axis_values(workload.axes),
                status=Status.UNMEASURED,
                log=f"too large for this GPU: {error}",
            )
        yield result.model_copy(update={"knobs": candidate.knobs_for(result.axes)})
        if result.status is Status.RUNTIME_ERROR and device != "cpu":
            return  # a CUDA error sticks to the context: nothing after it could be believed
        del trial
        release()


def _by_own_kernels(result: WorkloadResult, candidate: Candidate, trial: Trial) -> WorkloadResult:
    """Refuse a right result that kernels of others have made."""
    from kwiki_kernels.timing import kernel_names

    if result.status is not Status.PASSED or trial.device == "cpu":
        return result
    foreign = OwnKernels.of(candidate.source).foreign(kernel_names(trial.call))
    return (
        _rejected(result, f"a kernel ran that the candidate did not write: {foreign[0]}")
        if foreign
        else result
    )


def _unbroken(result: WorkloadResult, integrity: Integrity | None) -> WorkloadResult:
    """Whatever it computed, a kernel that touched its judge is refused."""
    broken = integrity.broken() if integrity else ""
    return _rejected(result, broken) if broken else result


def _rejected(result: WorkloadResult, log: str) -> WorkloadResult:
    return result.model_copy(update={"status": Status.REJECTED, "log": log, "timing": None})


def _checked_only(result: WorkloadResult) -> WorkloadResult:
    if result.status is not Status.PASSED:
        return result
    log = "right on the CPU; nothing was measured"
    return result.model_copy(update={"status": Status.UNMEASURED, "log": log})


def _wait_for_gpu(send: Send) -> None:
    if sys.stdin.buffer.readline() != GO:
        sys.exit("the keeper went away")
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    send(Ready())


def _levels(request: Request) -> tuple[Level, ...]:
    asked = request.job.defences.isolation
    if asked is not None:
        return asked
    return PROVEN_WITH_CUDA if request.measure else ALL


def _bind_to_keeper(fd: int) -> None:
    """Die with the keeper, and lend the channel to nobody."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.set_inheritable(fd, False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
