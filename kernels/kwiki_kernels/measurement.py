"""One kernel on one workload in steps, between which its rivals take their turns: prepare, rounds, finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from kwiki_kernels.build import explain
from kwiki_kernels.check import Finding
from kwiki_kernels.errors import JudgeError
from kwiki_kernels.evaluation import Status, Timing, WorkloadResult
from kwiki_kernels.inputs import poison
from kwiki_kernels.job import Protocol
from kwiki_kernels.roofline import floor_us, peaks_of, roofline_us
from kwiki_kernels.timing import Timer, host_us, make_timer, span_us
from kwiki_kernels.trial import Trial
from kwiki_kernels.watch import Watch

TIMED_VALUES = 2
"""Number of the set of values that timed calls are verified on."""


class Measurement:
    """The steps of a trial. After a step that fails, `result` says why and further steps do nothing.

    On a GPU each round is timed, and the last call of the last one verified. On the CPU as many calls
    as one round would time are spread over the rounds, and each is verified.
    """

    def __init__(self, trial: Trial, protocol: Protocol, path: Path, *, watch_each_call: bool) -> None:
        """`path` is the kernel's file, to point at the line that failed."""
        self.trial, self.protocol, self.path = trial, protocol, path
        self.on_gpu = trial.device != "cpu"
        self.watch = Watch(protocol.iterations, trial.device) if watch_each_call and self.on_gpu else None
        self.timer: Timer | None = None
        self.rounds: list[tuple[float, ...]] = []
        self.timing: Timing | None = None
        self.finding = Finding(Status.PASSED)

    @property
    def goes_on(self) -> bool:
        """Whether nothing has been found wrong."""
        return self.finding.status is Status.PASSED

    @property
    def captured(self) -> bool:
        """Whether a CUDA graph holds the timed calls."""
        return self.timer is not None and self.timer.name == "cuda_graph"

    def prepare(self) -> None:
        """Check, and make ready to be timed."""
        self._attempt(self._prepare)

    def round(self, *, fresh: bool) -> None:
        """One round; `fresh`: on other values than before, on poisoned outputs."""
        self._attempt(lambda: self._round(fresh))

    def finish(self) -> None:
        """Verify what the timed calls left behind, and time what the host needs."""
        self._attempt(self._finish)

    def result(self) -> WorkloadResult:
        """What is known by now."""
        trial = self.trial
        peaks = peaks_of(torch.cuda.get_device_name()) if self.on_gpu else None
        return WorkloadResult(
            uuid=trial.workload.uuid,
            axes=trial.definition.axis_values(trial.workload.axes),
            held_out=trial.workload.held_out,
            status=self.finding.status,
            log=self.finding.log,
            error=self.finding.error,
            timing=self.timing if self.goes_on else None,
            contest_passed=trial.contest_passed,
            bytes_moved=trial.work.bytes_moved,
            flops=trial.work.flops or None,
            roofline_us=roofline_us(trial.work, peaks) if peaks else None,
            floor_us=floor_us(trial.work, peaks) if peaks else None,
        )

    def _attempt(self, step: Callable[[], None]) -> None:
        if not self.goes_on:
            return
        try:
            step()
        except JudgeError:
            raise
        except Exception as error:
            self.finding = Finding(Status.RUNTIME_ERROR, explain(error, self.path))

    def _prepare(self) -> None:
        self.finding = self.trial.check()
        if not self.on_gpu:
            self.trial.refresh(TIMED_VALUES)
        elif self.goes_on and not self.trial.workload.held_out:
            self.timer = make_timer(self.trial.call, self.protocol, self.watch)
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # rivals need the memory that the reference has left

    def _round(self, fresh: bool) -> None:
        if self.timer is None:
            self._verified_calls()
            return
        if fresh:
            self.trial.refresh(TIMED_VALUES)
        self.rounds.append(self.timer.round())

    def _verified_calls(self) -> None:
        calls = self.protocol.warmup + self.protocol.iterations
        for _ in range(-(-calls // self.protocol.rounds)):
            poison(self.trial.outputs)
            finding = self.trial.verify(self.trial.call(), TIMED_VALUES)
            if finding.status is not Status.PASSED:
                log = f"wrong in a later call, though right before: {finding.log}"
                self.finding = replace(finding, log=log)
                return
            self.finding = finding

    def _finish(self) -> None:
        if self.timer is None:
            return
        finding = self.trial.verify(self.timer.returned, TIMED_VALUES)
        if finding.status is not Status.PASSED:
            log = f"wrong in the timed calls, though right before: {finding.log}"
            self.finding = replace(finding, log=log)
        elif self.watch and (idle := self.watch.idle()):
            log = f"{idle} of {self.protocol.iterations} timed calls did not work"
            self.finding = Finding(Status.REJECTED, log)
        else:
            self.finding = replace(finding, log=self.timer.note)
            self.timing = Timing(
                timer=self.timer.name,
                device_us=tuple(self.rounds),
                host_us=host_us(self.trial.call, self.protocol),
                span_us=span_us(self.trial.call, self.protocol) if self.protocol.span else None,
                order=self.protocol.order,
            )
