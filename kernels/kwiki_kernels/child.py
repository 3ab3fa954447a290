"""One candidate in a process of its own: `python -m kwiki_kernels.child REQUEST.json FD`.

Builds without a CUDA context, tells the keeper (messages on file descriptor FD), waits for its
word on standard input, then checks and times every workload on the GPU. Whatever a kernel does to
this process, the keeper outlives it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kwiki_kernels.build import Build, BuildError, build_candidate, load_module, run_entry
from kwiki_kernels.device import environment, local_gpu
from kwiki_kernels.errors import JudgeError, MachineError, TooLargeError
from kwiki_kernels.evaluation import Record, Status, WorkloadResult
from kwiki_kernels.job import Candidate
from kwiki_kernels.messages import (
    GO,
    Broken,
    Building,
    Built,
    Done,
    Failed,
    Judged,
    Measured,
    Ready,
    Request,
    Started,
)
from kwiki_kernels.task import Task, parse_task

PR_SET_PDEATHSIG = 1
FILE_LIMIT_BYTES = 1 << 30

Send = Callable[[Record], None]


def main(request_path: Path, fd: int) -> None:
    """Serve one request."""
    _confine(fd)
    request = Request.model_validate_json(request_path.read_bytes())

    def send(message: Record) -> None:
        os.write(fd, message.model_dump_json().encode() + b"\n")

    try:
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
        _judge_workloads(request, candidate, task, builds, send)


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
        yield Build("run", workloads, run_entry(module, task.definition))
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
    request: Request, candidate: Candidate, task: Task, builds: tuple[Build, ...], send: Send
) -> None:
    import torch

    from kwiki_kernels.terms import load_reference
    from kwiki_kernels.trial import Trial, check_room, release

    reference, terms = load_reference(task, Path.cwd())
    launches = {workload.uuid: build.launch for build in builds for workload in build.workloads}
    for uuid in request.job.workload_uuids:
        launch = launches[uuid]
        if launch is None:
            continue
        send(Started(uuid=uuid))
        workload = task.workload(uuid)
        trial = None
        try:
            check_room(task.definition, workload, torch.cuda.mem_get_info()[0])
            trial = Trial(
                launch,
                task.definition,
                workload,
                reference=reference,
                seed=request.job.seed,
                device="cuda",
                terms=terms,
            )
            result = trial.judge(request.job.protocol, Path.cwd() / "kernel.py")
        except TooLargeError as error:
            result = WorkloadResult(
                uuid=uuid,
                axes=task.definition.axis_values(workload.axes),
                status=Status.UNMEASURED,
                log=f"too large for this GPU: {error}",
            )
        send(Judged(result=result.model_copy(update={"knobs": candidate.knobs_for(result.axes)})))
        if result.status is Status.RUNTIME_ERROR:
            return  # a CUDA error sticks to the context: nothing after it could be believed
        del trial
        release()


def _wait_for_gpu(send: Send) -> None:
    if sys.stdin.buffer.readline() != GO:
        sys.exit("the keeper went away")
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    send(Ready())


def _confine(fd: int) -> None:
    """Die with the keeper, write no core and no endless file, lend the channel to nobody."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
    os.set_inheritable(fd, False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
