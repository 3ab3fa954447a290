"""The process that knows the answers: seed and reference never leave it, and no candidate is in it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kwiki_kernels import timing
from kwiki_kernels.arena import Arena, DeviceArena, FileArena, plan, values_in
from kwiki_kernels.errors import TooLargeError
from kwiki_kernels.examination import Examination, check_room
from kwiki_kernels.inputs import poison
from kwiki_kernels.messages import (
    Command,
    Found,
    FromExaminer,
    Measured,
    Paused,
    Placed,
    Placement,
    Pulse,
    Request,
    TooLarge,
)
from kwiki_kernels.roofline import floor_us, peaks_of, roofline_us
from kwiki_kernels.terms import load_reference


@dataclass(frozen=True)
class Place:
    """An arena in use."""

    arena: Arena
    examination: Examination
    inputs: list[Any]
    outputs: list[torch.Tensor]


class Examiner:
    """Fills arenas, looks into them, and tells how the machine is."""

    def __init__(self, request: Request, folder: Path) -> None:
        """Raises TaskError where the reference cannot be used."""
        self.request = request
        self.on_gpu = request.measure
        self.reference, self.terms = load_reference(request.task, folder)
        self.places: dict[str, Place] = {}
        self.made = 0

    def obey(self, command: Command) -> FromExaminer | Measured:
        """Carry out one command.

        Raises:
            TaskError: the task itself is at fault.
        """
        do: dict[str, Callable[[Command], FromExaminer | Measured]] = {
            "open": self._open, "place": self._place, "refresh": self._refresh, "verify": self._verify,
            "drop": self._drop, "pulse": self._pulse,
        }  # fmt: skip
        try:
            return do[command.do](command)
        except TooLargeError as error:
            return TooLarge(log=str(error))

    def _open(self, _: Command) -> Measured:
        """The figures that every timing of this job is read against."""
        protocol = self.request.job.protocol
        measured = Measured(
            cuda=timing.cuda_version(),
            copy_gbps=timing.copy_gbps(protocol),
            timer_floor_us=timing.timer_floor_us(protocol),
        )
        torch.cuda.empty_cache()
        self.heart = timing.Heart(protocol)
        return measured

    def _place(self, command: Command) -> Placed:
        definition = self.request.task.definition
        workload = self.request.task.workload(command.uuid)
        axes = definition.axis_values(workload.axes)
        if self.on_gpu:
            check_room(definition, workload, torch.cuda.mem_get_info()[0])
        examination = Examination(
            definition,
            workload,
            reference=self.reference,
            seed=self.request.job.seed,
            device="cuda" if self.on_gpu else "cpu",
            terms=self.terms,
        )
        values = examination.values(0)
        placement = plan(values, definition, axes)
        arena = self._arena(placement, Path(command.folder))
        place = Place(
            arena, examination, values_in(arena, placement.inputs), values_in(arena, placement.outputs)
        )
        self.places[command.key] = place
        for buffer, value in zip(place.inputs, values, strict=True):
            if isinstance(buffer, torch.Tensor):
                buffer.copy_(value)
        poison(place.outputs)
        self._wait()
        work = self.terms.work(definition, workload)
        peaks = peaks_of(torch.cuda.get_device_name()) if self.on_gpu else None
        return Placed(
            placement=placement.model_copy(update={"handle": arena.handle}),
            bytes_moved=work.bytes_moved,
            flops=work.flops,
            roofline_us=roofline_us(work, peaks) if peaks else None,
            floor_us=floor_us(work, peaks) if peaks else None,
        )

    def _arena(self, placement: Placement, folder: Path) -> Arena:
        if self.on_gpu:
            try:
                return DeviceArena(size=placement.size)
            except OSError as error:
                raise TooLargeError(f"its tensors do not fit: {error}") from error
        self.made += 1
        return FileArena(folder / f"arena-{self.made}", placement.size, create=True)

    def _refresh(self, command: Command) -> Paused:
        place = self.places[command.key]
        place.examination.refresh(command.number, place.inputs, place.outputs)
        self._wait()
        return Paused()

    def _verify(self, command: Command) -> Found:
        place = self.places[command.key]
        finding = place.examination.verify(command.number, place.inputs, place.outputs)
        return Found(
            status=finding.status,
            log=finding.log,
            error=finding.error,
            contest_passed=finding.contest_passed,
        )

    def _drop(self, command: Command) -> Paused:
        place = self.places.pop(command.key, None)
        if place:
            arena = place.arena
            del place
            if self.on_gpu:
                gc.collect()
                torch.cuda.empty_cache()
            arena.close()
        return Paused()

    def _pulse(self, _: Command) -> Pulse:
        right, device_us = self.heart.beat()
        return Pulse(right=right, device_us=device_us)

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()
