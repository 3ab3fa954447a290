"""Seeded inputs for a workload, and the float64 reference outputs that belong to them."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kwiki_kernels.definition import Definition, Workload, tensor_bytes
from kwiki_kernels.errors import TaskError, TooLargeError

FP8_CLAMP = 2.0
"""FlashInfer-Bench's rule for random fp8 inputs: randn clamped to [-2, 2], then cast."""
PIECE = 1 << 26
"""Elements drawn or compared at a time, so that float32 or float64 copies stay below 512 MiB."""

Inputs = list[Any]
"""In the definition's order: tensors, and Python numbers for scalars."""


Make = Callable[..., dict[str, Any]]
"""`make(axes, values, layout, spread)` of a task's inputs.py; see `task`."""


def make_inputs(
    definition: Definition,
    workload: Workload,
    seed: int,
    device: str,
    *,
    spread: float = 1.0,
    make: Make | None = None,
) -> Inputs:
    """Fresh inputs: what the task makes itself, then normal with standard deviation `spread` for
    floats and small for integers.

    The same seed gives the same values on the same kind of device.

    Raises:
        TaskError: the workload gives no value for a scalar or wants a captured tensor, or the task's
            `make` fails or gives another shape or dtype than the definition.
    """
    axes = definition.axis_values(workload.axes)
    generator = torch.Generator(device).manual_seed(_mix(seed, workload))
    contents = make_contents(definition, workload, generator, seed=seed, spread=spread, make=make)
    values: Inputs = []
    for name, spec in definition.inputs.items():
        given = workload.inputs.get(name, {"type": "random"})
        if name in contents:
            values.append(contents[name])
        elif given.get("type") == "random":
            shape = tuple(axes[axis] for axis in spec.shape or ())
            values.append(_random(shape, getattr(torch, spec.dtype), generator, spread))
        else:
            raise TaskError(
                f"workload {workload.uuid}: input '{name}' is of type '{given.get('type')}'; "
                "the judge makes only random tensors and scalars"
            )
    return values


def make_contents(
    definition: Definition,
    workload: Workload,
    values: torch.Generator,
    *,
    seed: int = 0,
    spread: float = 1.0,
    make: Make | None = None,
) -> dict[str, Any]:
    """The scalars, and the inputs that the task makes itself: small beside those that it does not.

    Only probes off the distribution (`spread` other than 1) take their layout from the seed.

    Raises:
        TaskError: as `make_inputs`.
    """
    scalars = {
        name: _scalar(name, workload.inputs.get(name, {}), workload)
        for name, spec in definition.inputs.items()
        if spec.shape is None
    }
    if make is None:
        return scalars
    layout = torch.Generator().manual_seed(_mix(0 if spread == 1.0 else seed, workload))
    axes = definition.axis_values(workload.axes)
    try:
        made = make(axes | scalars, values, layout, spread)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise TaskError(f"the task's inputs.py fails: {type(error).__name__}: {error}") from error
    for name, value in made.items():
        _check_made(definition, axes, name, value)
    return scalars | {name: value.to(values.device) for name, value in made.items()}


def memory_bytes(definition: Definition, workload: Workload) -> int:
    """Device memory that judging takes at least: inputs twice, since a pristine copy is kept, and outputs."""
    axes = definition.axis_values(workload.axes)
    return tensor_bytes(definition.inputs, axes) * 2 + tensor_bytes(definition.outputs, axes)


def poisoned_outputs(definition: Definition, workload: Workload, device: str) -> list[torch.Tensor]:
    """Output tensors that hold NaN, or the least integer, so that an element never written shows."""
    axes = definition.axis_values(workload.axes)
    outputs = []
    for spec in definition.outputs.values():
        shape = tuple(axes[axis] for axis in spec.shape or ())
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
    """What `run`, or `exact(dtype=float64)`, of a reference gives on the inputs' device, in float64.

    Raises:
        TaskError: the reference fails.
        TooLargeError: memory does not hold what it computes.
    """
    try:
        with torch.no_grad():
            if "dtype" in inspect.signature(reference).parameters:
                return as_list(reference(*inputs, dtype=torch.float64))
            return as_list(reference(*map(_double, inputs)))
    except torch.OutOfMemoryError as error:
        raise TooLargeError(f"its reference does not fit: {str(error).splitlines()[0]}") from error
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


def _mix(seed: int, workload: Workload) -> int:
    return seed ^ zlib.crc32(workload.uuid.encode())


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else value


def _check_made(definition: Definition, axes: dict[str, int], name: str, value: Any) -> None:
    spec = definition.inputs.get(name)
    if spec is None or spec.shape is None or not isinstance(value, torch.Tensor):
        raise TaskError(f"the task's inputs.py makes '{name}', which is no input tensor of {definition.name}")
    shape = tuple(axes[axis] for axis in spec.shape)
    if tuple(value.shape) != shape or value.dtype is not getattr(torch, spec.dtype):
        made = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        raise TaskError(f"the task's inputs.py makes '{name}' as {made}, must be {spec.dtype} {list(shape)}")


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
