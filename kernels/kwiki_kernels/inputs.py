"""Seeded inputs for a workload, and the float64 reference outputs that belong to them."""

from __future__ import annotations

import inspect
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kwiki_kernels.definition import Definition, Workload, tensor_bytes
from kwiki_kernels.errors import TaskError, TooLargeError
from kwiki_kernels.probes import bend_rows, row_kinds

FP8_CLAMP = 2.0
"""FlashInfer-Bench's rule for random fp8 inputs: randn clamped to [-2, 2], then cast."""
PIECE = 1 << 26
"""Elements drawn or compared at a time, so that float32 or float64 copies stay below 512 MiB."""

Inputs = list[Any]
"""In the definition's order: tensors, and Python numbers for scalars."""


@dataclass(frozen=True)
class Contents:
    """The functions of a task's inputs.py, if any, and its captured tensors; see `task`."""

    layout: Callable[[dict[str, Any], torch.Generator], dict[str, Any]] | None = None
    values: Callable[[dict[str, Any], torch.Generator, float], dict[str, Any]] | None = None
    captured: Mapping[str, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    """Path of a file, as workloads name it, to its tensors by key."""


PLAIN = Contents()
"""All inputs are plain random numbers."""


def make_inputs(
    definition: Definition,
    workload: Workload,
    seed: int,
    device: str,
    *,
    spread: float = 1.0,
    contents: Contents = PLAIN,
) -> Inputs:
    """Fresh inputs: what the task makes itself or captured, then normal with standard deviation `spread`
    for floats and small for integers. With a spread other than 1, half of the rows are special (see
    `probes`) and captured floats are halved: other values, but none that their meaning rules out.

    The same seed gives the same values on the same kind of device.

    Raises:
        TaskError: the workload gives no value for a scalar, a captured tensor is not there, or the task's
            inputs.py fails; or one of these has another shape or dtype than the definition says, or NaN.
    """
    if problem := definition.unmakeable(workload):
        raise TaskError(problem)
    axes = definition.axis_values(workload.axes)
    generator = torch.Generator(device).manual_seed(_mix(seed, workload))
    # Only probes off the distribution take their layout from the seed.
    made = make_layout(definition, workload, contents, seed=0 if spread == 1.0 else seed)
    if contents.values is not None:
        scaled = partial(contents.values, axes, generator, spread)
        made |= _checked(definition, axes, scaled)
    made |= _captured(definition, workload, contents, halved=spread != 1.0)
    values: Inputs = []
    for name, spec in definition.inputs.items():
        if name in made:
            values.append(made[name].to(device) if isinstance(made[name], torch.Tensor) else made[name])
        else:
            shape = tuple(axes[axis] for axis in spec.shape or ())
            values.append(_random(shape, getattr(torch, spec.dtype), generator, spread))
    return values


def make_layout(
    definition: Definition, workload: Workload, contents: Contents, *, seed: int = 0
) -> dict[str, Any]:
    """The scalars, and on the CPU those inputs that decide how much work there is.

    Raises:
        TaskError: as `make_inputs`.
    """
    scalars = {name: workload.scalar(name) for name, spec in definition.inputs.items() if spec.shape is None}
    if contents.layout is None:
        return scalars
    axes = definition.axis_values(workload.axes)
    generator = torch.Generator().manual_seed(_mix(seed, workload))
    return scalars | _checked(definition, axes, partial(contents.layout, axes | scalars, generator))


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

    A `run` that takes no float64 gets the inputs as they are.

    Raises:
        TaskError: the reference fails.
        TooLargeError: memory does not hold what it computes.
    """
    try:
        with torch.no_grad():
            outputs = _call(reference, inputs)
    except torch.OutOfMemoryError as error:
        raise TooLargeError(f"its reference does not fit: {str(error).splitlines()[0]}") from error
    except Exception as error:
        raise TaskError(f"the task's reference fails: {type(error).__name__}: {error}") from error
    for number, output in enumerate(outputs):
        if isinstance(output, torch.Tensor) and output.numel() and bool(output.isnan().all()):
            # What marks unwritten outputs would pass for right.
            raise TaskError(f"the task's reference gives nothing but NaN as output number {number + 1}")
    return outputs


def _call(reference: Callable[..., Any], inputs: Inputs) -> list[torch.Tensor]:
    if "dtype" in inspect.signature(reference).parameters:
        return as_list(reference(*inputs, dtype=torch.float64))
    try:
        return as_list(reference(*map(_double, inputs)))
    except torch.OutOfMemoryError:
        raise
    except Exception:
        return as_list(reference(*inputs))


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


def _captured(
    definition: Definition, workload: Workload, contents: Contents, *, halved: bool
) -> dict[str, torch.Tensor]:
    axes = definition.axis_values(workload.axes)
    made = {}
    for name, given in workload.captured.items():
        found = contents.captured.get(given["path"], {}).get(given["tensor_key"])
        if found is None:
            where = f"no tensor '{given['tensor_key']}' in '{given['path']}'"
            raise TaskError(f"workload {workload.uuid}: input '{name}' is captured, but there is {where}")
        half = halved and found.dtype.is_floating_point
        made[name] = (found.float() / 2).to(found.dtype) if half else found.clone()
    for name, tensor in made.items():
        _check_form(definition, axes, name, tensor, f"workload {workload.uuid} captured")
    return made


def _checked(
    definition: Definition, axes: dict[str, int], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """What a function of the task's inputs.py makes, if it is what the definition says."""
    try:
        made = make()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise TaskError(f"the task's inputs.py fails: {type(error).__name__}: {error}") from error
    for name, value in made.items():
        _check_form(definition, axes, name, value, "the task's inputs.py makes")
    return made


def _check_form(definition: Definition, axes: dict[str, int], name: str, value: Any, who: str) -> None:
    spec = definition.inputs.get(name)
    if spec is None or spec.shape is None or not isinstance(value, torch.Tensor):
        raise TaskError(f"{who} '{name}', which is no input tensor of {definition.name}")
    shape = tuple(axes[axis] for axis in spec.shape)
    if tuple(value.shape) != shape or value.dtype is not getattr(torch, spec.dtype):
        is_now = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        raise TaskError(f"{who} '{name}' as {is_now}, must be {spec.dtype} {list(shape)}")
    if value.dtype.is_floating_point and any(bool(piece.float().isnan().any()) for (piece,) in pieces(value)):
        raise TaskError(f"{who} '{name}' with NaN, from which nothing right can follow")


def _random(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator, spread: float
) -> torch.Tensor:
    out = torch.empty(shape, dtype=dtype, device=generator.device)
    if dtype is torch.bool:
        return out.random_(2, generator=generator)
    if not dtype.is_floating_point:
        least = torch.iinfo(dtype).min if out.element_size() == 1 else 0
        return out.random_(least, 128, generator=generator)
    if not out.numel():
        return out
    bent = spread != 1.0 and len(shape) > 1
    rows = out.view(-1, shape[-1] if bent else 1)
    kinds = row_kinds(len(rows), generator, gentle=dtype is torch.float16) if bent else None
    step = max(1, PIECE // rows.shape[1])
    for start in range(0, len(rows), step):
        piece = rows[start : start + step]
        drawn = torch.empty(piece.shape, dtype=torch.float32, device=generator.device)
        drawn.normal_(0.0, spread, generator=generator)
        if kinds is not None:
            bend_rows(drawn, kinds[start : start + step], spread, generator)
        piece.copy_(drawn.clamp_(-FP8_CLAMP, FP8_CLAMP) if out.element_size() == 1 else drawn)
    return out
