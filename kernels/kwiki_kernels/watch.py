"""Whether each timed call did its own work, though only the last one's values are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

SIXTEEN_BITS_UP = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


class Watch:
    """Poisons the outputs before each timed call and counts what it left of the poison.

    All of it happens on the GPU, outside of the events and inside a capture. A call that did nothing,
    because another did its work or because it knew what it was for, leaves every element poisoned.
    """

    def __init__(self, calls: int, device: str) -> None:
        self.left = torch.zeros(calls, dtype=torch.int64, device=device)

    def before(self, outputs: Any) -> None:
        """Poison what the call before left, so that handing it out again shows."""
        for output in _watched(outputs):
            output.fill_(_poison(output))

    def after(self, number: int, outputs: Any) -> None:
        """Count the poisoned elements behind call `number`."""
        slot = self.left[number]
        slot.zero_()
        for output in _watched(outputs):
            poisoned = output.isnan() if output.dtype.is_floating_point else output == _poison(output)
            slot.add_(poisoned.sum())

    def idle(self) -> int:
        """Calls that left more poison than the last one, whose values were compared."""
        return int((self.left > self.left[-1]).sum())


def _watched(outputs: Any) -> Sequence[torch.Tensor]:
    """fp8 cannot be filled, and a bool has no value to spare."""
    tensors = [output for output in outputs or () if type(output) is torch.Tensor]
    return [
        t
        for t in tensors
        if t.dtype in SIXTEEN_BITS_UP or not (t.is_floating_point() or t.dtype is torch.bool)
    ]


def _poison(output: torch.Tensor) -> float:
    return math.nan if output.dtype.is_floating_point else torch.iinfo(output.dtype).min
