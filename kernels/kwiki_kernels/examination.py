"""What one workload asks of a kernel: values to compute on, and whether what came out is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kwiki_kernels.check import Finding, check_form, check_unchanged, check_values
from kwiki_kernels.definition import Definition, Workload
from kwiki_kernels.errors import TooLargeError
from kwiki_kernels.inputs import Inputs, expected_outputs, memory_bytes, poison
from kwiki_kernels.selection import check_selection
from kwiki_kernels.terms import STATES_NONE, Terms

SPREADS = (1.0, 4.0, 1.0)
"""Of the three sets of values. A kernel that puts expectations in place of norms fails the second."""


class Examination:
    """Three sets of values for the buffers of one workload, and the answers to them.

    The values in the buffers change from check to check while the buffers stay, so that a result
    remembered by address is a wrong result. Outputs are poisoned before each check, and the kernel runs
    before the reference does.
    """

    def __init__(
        self,
        definition: Definition,
        workload: Workload,
        *,
        reference: Callable[..., Any],
        seed: int,
        device: str,
        terms: Terms = STATES_NONE,
    ) -> None:
        self.definition, self.workload, self.terms = definition, workload, terms
        self.reference, self.seed, self.device = reference, seed, device

    def values(self, number: int) -> Inputs:
        """Fresh inputs: those of set `number`.

        Raises:
            TaskError: the task itself is at fault.
            TooLargeError: memory does not hold them.
        """
        seed = self.seed + number
        try:
            return self.terms.inputs(self.definition, self.workload, seed, self.device, SPREADS[number])
        except torch.OutOfMemoryError as error:
            raise TooLargeError(f"its inputs do not fit: {str(error).splitlines()[0]}") from error

    def refresh(self, number: int, inputs: Inputs, outputs: Sequence[torch.Tensor]) -> None:
        """Put the values of a set into these buffers, and poison the outputs; raises as `values`."""
        for buffer, value in zip(inputs, self.values(number), strict=True):
            if isinstance(buffer, torch.Tensor):
                buffer.copy_(value)
        poison(outputs)

    def verify(self, number: int, inputs: Inputs, outputs: Sequence[Any]) -> Finding:
        """Whether the inputs are as they were and the outputs what the reference makes of them.

        The contest's verdict is left out where the values are a probe, which a contest does not have.

        Raises:
            TaskError: the task itself is at fault.
            TooLargeError: memory does not hold the values and what the reference computes.
        """
        if finding := check_form(self.definition, self.workload, outputs):
            return finding
        pristine = self.values(number)
        if finding := check_unchanged(self.definition, inputs, pristine):
            return finding
        if self.terms.candidates is not None and self.terms.tolerance.selection:
            (name,) = self.definition.outputs
            slots, scores = self.terms.candidates(*pristine, dtype=torch.float64)
            finding = check_selection(name, outputs[0], slots, scores, self.terms.tolerance)
        else:
            expected = expected_outputs(self.reference, pristine)
            finding = check_values(self.definition, outputs, expected, self.terms.tolerance)
        return finding if SPREADS[number] == 1.0 else replace(finding, contest_passed=None)


def check_room(definition: Definition, workload: Workload, free_bytes: int) -> None:
    """Refuse a workload whose tensors alone exceed the free device memory.

    Raises:
        TooLargeError: they do.
    """
    needed = memory_bytes(definition, workload)
    if needed > free_bytes:
        need, free = f"{needed / 1e9:.1f} GB", f"{free_bytes / 1e9:.1f} GB"
        raise TooLargeError(f"judging it takes at least {need} of device memory, {free} are free")
