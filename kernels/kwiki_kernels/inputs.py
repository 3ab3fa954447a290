"""Seeded inputs for a workload, and the float64 reference outputs that belong to them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kwiki_kernels.task import Definition, TaskError, Workload

FP8_CLAMP = 2.0
"""FlashInfer-Bench's rule for random fp8 inputs: randn clamped to [-2, 2], then cast."""
PIECE = 1 << 26
"""Elements drawn or compared at a time, so that float32 or float64 copies stay below 512 MiB."""

Inputs = list[Any]
"""In the definition's order: tensors, and Python numbers for scalars."""


def make_inputs(
    definition: Definition, workload: Workload, seed: int, device: str, *, spread: float = 1.0
) -> Inputs:
    """Fresh inputs: normal with standard deviation `spread` for floats, small for integers.

    The same seed gives the same values on the same kind of device.

    Raises:
        TaskError: the workload gives no value for a scalar, or wants a captured tensor.
    """
    axes = definition.axis_values(workload.axes)
    generator = torch.Generator(device).manual_seed(seed ^ zlib.crc32(workload.uuid.encode()))
    values: Inputs = []
    for name, spec in definition.inputs.items():
        given = workload.inputs.get(name, {"type": "random"})
        if spec.shape is None:
            values.append(_scalar(name, given, workload))
        elif given.get("type") == "random":
            shape = tuple(axes[axis] for axis in spec.shape)
            values.append(_random(shape, getattr(torch, spec.dtype), generator, spread))
        else:
            raise TaskError(
                f"workload {workload.uuid}: input '{name}' is of type '{given.get('type')}'; "
                "the judge makes only random tensors and scalars"
            )
    return values


def poisoned_outputs(definition: Definition, workload: Workload, device: str) -> list[torch.Tensor]:
    """Output tensors that hold NaN, or the least integer, so that an element never written shows."""
    axes = definition.axis_values(workload.axes)
    outputs = []
    for name, spec in definition.outputs.items():
        if spec.shape is None:
            raise TaskError(f"{definition.name}: output '{name}' is a scalar; the judge knows only tensors")
        shape = tuple(axes[axis] for axis in spec.shape)
        outputs.append(torch.empty(shape, dtype=getattr(torch, spec.dtype), device=device))
    poison(outputs)
    return outputs


def poison(outputs: Sequence[torch.Tensor]) -> None:
    """Overwrite outputs with NaN (floats) or the least value (integers)."""
    for output in outputs:
        if output.dtype.is_floating_point:
            output.copy_(torch.tensor(math.nan, device=output.device).to(output.dtype))
        elif output.dtype is torch.bool:
            output.fill_(True)
        else:
            output.fill_(torch.iinfo(output.dtype).min)


def expected_outputs(reference: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    """The reference on the inputs upcast to float64, on their device.

    Raises:
        TaskError: the reference fails.
    """
    upcast = [
        value.double() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value
        for value in inputs
    ]
    try:
        with torch.no_grad():
            return as_list(reference(*upcast))
    except Exception as error:
        raise TaskError(f"the task's reference fails: {type(error).__name__}: {error}") from error


def as_list(returned: Any) -> list[Any]:
    """What `run(*inputs) -> tensor | tuple` returned, as a list."""
    return list(returned) if isinstance(returned, tuple | list) else [returned]


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same stretch of each flattened tensor, `PIECE` elements at a time."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(tensor[start : start + PIECE] for tensor in flat)


def _random(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, spread: float
) -> torch.Tensor:
    out = torch.empty(shape, dtype=dtype, device=generator.device)
    if dtype is torch.bool:
        return out.random_(2, generator=generator)
    if not dtype.is_floating_point:
        least = torch.iinfo(dtype).min if out.element_size() == 1 else 0
        return out.random_(least, 128, generator=generator)
    for (piece,) in pieces(out):
        drawn = torch.empty(piece.shape, dtype=torch.float32, device=generator.device)
        drawn.normal_(0.0, spread, generator=generator)
        piece.copy_(drawn.clamp_(-FP8_CLAMP, FP8_CLAMP) if out.element_size() == 1 else drawn)
    return out


def _scalar(name: str, given: Any, workload: Workload) -> bool | int | float:
    scalars = (workload.model_extra or {}).get("scalars", {})
    value = given.get("value", scalars.get(name)) if isinstance(given, dict) else given
    if not isinstance(value, bool | int | float):
        raise TaskError(f"workload {workload.uuid} gives no value for the scalar '{name}'")
    return value
