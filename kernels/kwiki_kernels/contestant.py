"""What a candidate's process does on the GPU, or on the CPU, one command of the keeper at a time."""

from __future__ import annotations

import contextlib
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kwiki_kernels.arena import Arena, DeviceArena, FileArena, values_in
from kwiki_kernels.build import Build, Launch, explain
from kwiki_kernels.check import check_form
from kwiki_kernels.errors import MachineError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import as_list
from kwiki_kernels.launched import kernel_names
from kwiki_kernels.messages import Command, Fell, Paused, Placement, Ready, Request, Send, Timed
from kwiki_kernels.timing import Timer, host_us, make_timer, span_us
from kwiki_kernels.watch import Watch

if TYPE_CHECKING:  # it watches this module
    from kwiki_kernels.integrity import Integrity


class Runner:
    """A kernel bound to buffers that somebody else fills and reads."""

    def __init__(self, launch: Launch, inputs: list[Any], outputs: list[torch.Tensor]) -> None:
        self.launch, self.inputs, self.outputs = launch, inputs, outputs

    def call(self) -> list[Any]:
        """Run the kernel once, asynchronously on a GPU; gives the outputs, wherever they are."""
        if self.launch.returns_outputs:
            return as_list(self.launch.function(*self.inputs))
        self.launch.function(*self.inputs, *self.outputs)
        return list(self.outputs)

    def hand_over(self, returned: list[Any]) -> None:
        """Put outputs of the right form into the buffers, where they are not there already."""
        for buffer, value in zip(self.outputs, returned, strict=True):
            if buffer is not value:
                buffer.copy_(value)


class Contestant:
    """A built candidate that obeys; between two commands it leaves the GPU idle."""

    def __init__(
        self, request: Request, builds: tuple[Build, ...], integrity: Integrity | None, send: Send
    ) -> None:
        """`builds` are those that can be launched here; `integrity` is None for a baseline."""
        self.request, self.integrity, self.send = request, integrity, send
        self.folder = Path.cwd()
        self.on_gpu = request.measure
        self.launches = {w.uuid: build.launch for build in builds for w in build.workloads if build.launch}
        self.arena: Arena | None = None
        self.runner: Runner | None = None
        self.timer: Timer | None = None
        self.watch: Watch | None = None

    def obey(self, command: Command) -> None:
        """Carry out one command and answer it.

        Raises:
            MachineError: processes cannot share the GPU's memory here.
        """
        if command.do == "open":
            self._open()
            return
        try:
            answer = self._do(command)
        except MachineError:
            raise
        except Exception as error:
            log = explain(error, self.folder / "kernel.py")
            answer = Fell(status=Status.RUNTIME_ERROR, log=log, broken=self._broken())
        self.send(answer)

    def _open(self) -> None:
        if self.on_gpu:
            open_gpu()
        self.send(Ready())
        if self.integrity:
            self.integrity.see_context()

    def _do(self, command: Command) -> Paused | Timed | Fell:
        match command.do:
            case "bind":
                assert command.placement is not None
                self._bind(command.uuid, command.placement)
            case "call":
                return self._handed_over(command.uuid, self._bound.call())
            case "arm":
                return self._arm()
            case "round":
                return self._round(command.uuid)
            case "finish":
                return self._finish()
            case _:
                self._leave()
        return Paused(broken=self._broken())

    @property
    def _bound(self) -> Runner:
        assert self.runner is not None
        return self.runner

    def _bind(self, uuid: str, placement: Placement) -> None:
        try:
            if self.on_gpu:
                self.arena = DeviceArena(handle=placement.handle)
            else:
                self.arena = FileArena(self.folder / placement.handle, placement.size, create=False)
        except OSError as error:
            raise MachineError(
                f"processes cannot share memory here ({error}): the judge needs CUDA's IPC on a GPU"
            ) from error
        inputs, outputs = values_in(self.arena, placement.inputs), values_in(self.arena, placement.outputs)
        self.runner = Runner(self.launches[uuid], inputs, outputs)

    def _handed_over(
        self, uuid: str, returned: list[Any], device_us: tuple[float, ...] = ()
    ) -> Paused | Fell:
        """Leave the outputs where the examiner looks."""
        self._wait()
        task = self.request.task
        finding = check_form(task.definition, task.workload(uuid), returned)
        if finding:
            return Fell(status=finding.status, log=finding.log, broken=self._broken())
        self._bound.hand_over(returned)
        self._wait()
        return Paused(broken=self._broken(), device_us=device_us)

    def _arm(self) -> Paused:
        protocol, defences = self.request.job.protocol, self.request.job.defences
        if defences.each_call and not self.request.baseline:
            self.watch = Watch(protocol.iterations, "cuda")
        self.timer = make_timer(self._bound.call, protocol, self.watch)
        self._wait()
        return Paused(broken=self._broken())

    def _round(self, uuid: str) -> Paused | Fell:
        """On the CPU, one call."""
        if self.timer is None:
            return self._handed_over(uuid, self._bound.call())
        device_us = self.timer.round()
        return self._handed_over(uuid, self.timer.returned, device_us)

    def _finish(self) -> Timed:
        assert self.timer is not None
        protocol, call = self.request.job.protocol, self._bound.call
        names: list[str] = []
        if self.request.job.defences.kernel_names and not self.request.baseline:
            names = kernel_names(call, capturable=self.timer.name == "cuda_graph")
        return Timed(
            broken=self._broken(),
            timer=self.timer.name,
            note=self.timer.note,
            host_us=host_us(call, protocol),
            span_us=span_us(call, protocol) if protocol.span else None,
            idle=self.watch.idle() if self.watch else 0,
            kernels=tuple(names),
        )

    def _leave(self) -> None:
        arena = self.arena
        self.runner = self.timer = self.watch = self.arena = None
        release()
        if arena:
            arena.close()

    def _broken(self) -> str:
        return self.integrity.broken() if self.integrity else ""

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def load_driver() -> None:
    """Initialise CUDA without a context; what goes wrong here goes wrong again in `open_gpu`."""
    with contextlib.suppress(RuntimeError, AssertionError):
        torch.cuda.init()  # type: ignore[no-untyped-call]


def open_gpu() -> None:
    """Create the CUDA context; what goes wrong before that is the machine's doing."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def release() -> None:
    """Give GPU memory back between workloads, and let torch.compile start afresh for the next shape.

    Its compiler gives up specialising after eight shapes, and a baseline would then silently be eager.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
