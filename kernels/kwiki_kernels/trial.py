"""One kernel bound to the buffers of one workload: called, and checked against the reference."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import torch

from kwiki_kernels.build import Launch
from kwiki_kernels.check import Finding, check_form, check_unchanged, check_values
from kwiki_kernels.definition import Definition, Workload
from kwiki_kernels.errors import TooLargeError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import Inputs, as_list, expected_outputs, memory_bytes, poison, poisoned_outputs
from kwiki_kernels.selection import check_selection
from kwiki_kernels.terms import STATES_NONE, Terms

SPREADS = (1.0, 4.0, 1.0)
"""Of the three sets of values. A kernel that puts expectations in place of norms fails the second."""


class Trial:
    """A kernel bound to the buffers of one workload.

    The values in the buffers change from check to check while the buffers stay, so that a result
    remembered by address is a wrong result. Outputs are poisoned before each check, the kernel runs
    before the reference does, and the last check is on a timed call.
    """

    def __init__(
        self,
        launch: Launch,
        definition: Definition,
        workload: Workload,
        *,
        reference: Callable[..., Any],
        seed: int,
        device: str,
        terms: Terms = STATES_NONE,
    ) -> None:
        self.launch, self.definition, self.workload = launch, definition, workload
        self.reference, self.seed, self.device, self.terms = reference, seed, device, terms
        self.inputs = self._values(0)
        self.outputs = poisoned_outputs(definition, workload, device)
        self.contest_passed: bool | None = None
        self.work = terms.work(definition, workload)

    def check(self) -> Finding:
        """Two calls on the same buffers with different values, each against the reference."""
        finding = self.verify(self.call(), 0)
        if finding.status is Status.PASSED:
            self.refresh(1)
            finding = self.verify(self.call(), 1)
        return finding

    def call(self) -> list[Any]:
        """Run the kernel once; asynchronous on a GPU."""
        if self.launch.returns_outputs:
            return as_list(self.launch.function(*self.inputs))
        self.launch.function(*self.inputs, *self.outputs)
        return list(self.outputs)

    def refresh(self, number: int) -> None:
        """Put another set of values into the same buffers and poison the outputs."""
        for buffer, value in zip(self.inputs, self._values(number), strict=True):
            if isinstance(buffer, torch.Tensor):
                buffer.copy_(value)
        poison(self.outputs)

    def _values(self, number: int) -> Inputs:
        seed = self.seed + number
        try:
            return self.terms.inputs(self.definition, self.workload, seed, self.device, SPREADS[number])
        except torch.OutOfMemoryError as error:
            raise TooLargeError(f"its inputs do not fit: {str(error).splitlines()[0]}") from error

    def verify(self, outputs: list[Any], number: int) -> Finding:
        """Compare outputs with what the reference makes of the values of that number.

        Raises:
            TaskError: the task itself is at fault.
            TooLargeError: the GPU's memory does not hold the workload and its reference.
        """
        if self.device != "cpu":
            torch.cuda.synchronize()
        if finding := check_form(self.definition, self.workload, outputs):
            return finding
        pristine = self._values(number)
        if finding := check_unchanged(self.definition, self.inputs, pristine):
            return finding
        if self.terms.candidates is not None and self.terms.tolerance.selection:
            (name,) = self.definition.outputs
            slots, scores = self.terms.candidates(*pristine, dtype=torch.float64)
            finding = check_selection(name, outputs[0], slots, scores, self.terms.tolerance)
        else:
            expected = expected_outputs(self.reference, pristine)
            finding = check_values(self.definition, outputs, expected, self.terms.tolerance)
        if SPREADS[number] == 1.0 and finding.contest_passed is not None:  # a contest has no probes
            self.contest_passed = self.contest_passed is not False and finding.contest_passed
        return finding


def check_room(definition: Definition, workload: Workload, free_bytes: int) -> None:
    """Refuse a workload whose tensors alone exceed the free device memory.

    Raises:
        TooLargeError: they do.
    """
    needed = memory_bytes(definition, workload)
    if needed > free_bytes:
        need, free = f"{needed / 1e9:.1f} GB", f"{free_bytes / 1e9:.1f} GB"
        raise TooLargeError(f"judging it takes at least {need} of device memory, {free} are free")


def release() -> None:
    """Give GPU memory back between workloads, and let torch.compile start afresh for the next shape.

    Its compiler gives up specialising after eight shapes, and a baseline would then silently be eager.
    """
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
