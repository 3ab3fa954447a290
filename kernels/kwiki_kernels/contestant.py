"""What a candidate's process does on the GPU, or on the CPU, one command of the keeper at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kwiki_kernels.audit import OwnKernels
from kwiki_kernels.build import Build
from kwiki_kernels.errors import TooLargeError
from kwiki_kernels.evaluation import Status, WorkloadResult
from kwiki_kernels.job import Candidate
from kwiki_kernels.launched import kernel_names
from kwiki_kernels.measurement import Measurement
from kwiki_kernels.messages import Command, Judged, Paused, Ready, Request, Send, Started
from kwiki_kernels.task import Task
from kwiki_kernels.terms import load_reference
from kwiki_kernels.trial import Trial, check_room, release

if TYPE_CHECKING:  # it watches this module
    from kwiki_kernels.integrity import Integrity


class Contestant:
    """A built candidate that obeys; between two commands it leaves the GPU idle."""

    def __init__(
        self,
        request: Request,
        candidate: Candidate,
        task: Task,
        builds: tuple[Build, ...],
        integrity: Integrity | None,
        send: Send,
    ) -> None:
        """`builds` are those that can be launched here; `integrity` is None for a baseline."""
        self.request, self.candidate, self.task, self.integrity = request, candidate, task, integrity
        self.send = send
        self.folder = Path.cwd()
        self.on_gpu = request.measure
        self.launches = {w.uuid: build.launch for build in builds for w in build.workloads}
        self.trial: Trial | None = None
        self.measurement: Measurement | None = None

    def obey(self, command: Command) -> None:
        """Carry out one command and answer it.

        Raises:
            TaskError: the task itself is at fault.
        """
        match command.do:
            case "open":
                self._open()
            case "prepare":
                self.send(Started(uuid=command.uuid))
                self._step(command.uuid, partial(self._prepare, command.uuid))
            case "round":
                assert self.measurement is not None
                self._step(command.uuid, partial(self.measurement.round, fresh=command.fresh))
            case _:
                assert self.measurement is not None
                self._step(command.uuid, self.measurement.finish, last=True)

    def _open(self) -> None:
        if self.on_gpu:
            open_gpu()
        self.send(Ready())
        if self.integrity:
            self.integrity.see_context()
        self.reference, self.terms = load_reference(self.task, self.folder)

    def _prepare(self, uuid: str) -> None:
        task, job = self.task, self.request.job
        workload, launch = task.workload(uuid), self.launches[uuid]
        assert launch is not None
        if self.on_gpu:
            check_room(task.definition, workload, torch.cuda.mem_get_info()[0])
        self.trial = Trial(
            launch,
            task.definition,
            workload,
            reference=self.reference,
            seed=job.seed,
            device="cuda" if self.on_gpu else "cpu",
            terms=self.terms,
        )
        self.measurement = Measurement(
            self.trial,
            job.protocol,
            self.folder / "kernel.py",
            watch_each_call=job.defences.each_call and not self.request.baseline,
        )
        self.measurement.prepare()

    def _step(self, uuid: str, step: Callable[[], None], *, last: bool = False) -> None:
        try:
            step()
            assert self.measurement is not None
            held_out = self.task.workload(uuid).held_out  # checked, and that is all
            if self.measurement.goes_on and not last and not held_out:
                self.send(Paused())
                return
            result = self._by_own_kernels(self.measurement.result())
        except TooLargeError as error:
            result = self._too_large(uuid, error)
        result = result.model_copy(update={"knobs": self.candidate.knobs_for(result.axes)})
        if not self.on_gpu:
            result = _checked_only(result)
        # A CUDA error sticks to the context: nothing may be asked of it any more.
        if self.on_gpu and result.status is not Status.RUNTIME_ERROR:
            self.trial = self.measurement = None
            release()
        self.send(Judged(result=self._unbroken(result)))

    def _by_own_kernels(self, result: WorkloadResult) -> WorkloadResult:
        """Refuse a right result that kernels of others have made."""
        asked = self.request.job.defences.kernel_names and self.on_gpu and not self.request.baseline
        if not asked or result.status is not Status.PASSED:
            return result
        assert self.trial is not None
        assert self.measurement is not None
        names = kernel_names(self.trial.call, capturable=self.measurement.captured)
        foreign = OwnKernels.of(self.candidate.source).foreign(names)
        log = f"a kernel ran that the candidate did not write: {foreign[0]}" if foreign else ""
        return _rejected(result, log) if foreign else result

    def _unbroken(self, result: WorkloadResult) -> WorkloadResult:
        """Whatever it computed, a kernel that touched its judge is refused."""
        broken = self.integrity.broken() if self.integrity else ""
        return _rejected(result, broken) if broken else result

    def _too_large(self, uuid: str, error: TooLargeError) -> WorkloadResult:
        workload = self.task.workload(uuid)
        return WorkloadResult(
            uuid=uuid,
            axes=self.task.definition.axis_values(workload.axes),
            held_out=workload.held_out,
            status=Status.UNMEASURED,
            log=f"too large for this GPU: {error}",
        )


def load_driver() -> None:
    """Initialise CUDA without a context; what goes wrong here goes wrong again in `open_gpu`."""
    with contextlib.suppress(RuntimeError, AssertionError):
        torch.cuda.init()  # type: ignore[no-untyped-call]


def open_gpu() -> None:
    """Create the CUDA context; what goes wrong before that is the machine's doing."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def _rejected(result: WorkloadResult, log: str) -> WorkloadResult:
    return result.model_copy(update={"status": Status.REJECTED, "log": log, "timing": None})


def _checked_only(result: WorkloadResult) -> WorkloadResult:
    if result.status is not Status.PASSED:
        return result
    log = "right on the CPU; nothing was measured"
    return result.model_copy(update={"status": Status.UNMEASURED, "log": log})
