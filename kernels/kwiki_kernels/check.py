"""Whether outputs are right: exact in form, close in value to a float64 reference.

Bounds follow from the output's precision, not from taste. Rounding once to a format whose spacing
at 1 is `eps` leaves a relative L2 error of about 0.21 eps (uniform error of one spacing, averaged
over mantissas): 1.6e-3 for bfloat16. A faithful kernel may round a second time inside (x * rstd,
say), which gives 2.3e-3. The bound is three such roundings, 0.64 eps, 5e-3 for bfloat16; a kernel
that computes something else is orders of magnitude away. Elements may differ by two spacings of
their own size plus one of the output's RMS, so zeros cannot hide below an absolute tolerance.

A task whose faithful kernels round in the middle of long sums states its own bound in
`tolerance.json`. Errors of sums are close to normal, and the largest of 1e8 normal errors is 5.7
standard deviations, so single elements may then differ by eight times that bound of the RMS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kwiki_kernels.definition import Definition, Workload
from kwiki_kernels.evaluation import ErrorStats, Status
from kwiki_kernels.inputs import Inputs, pieces
from kwiki_kernels.tolerance import BY_PRECISION, ContestTolerance, Tolerance

RELATIVE_L2_PER_EPS = 0.64
LARGEST_OF_MANY = 8.0
"""Bound on an element's error over the RMS error that a task's own tolerance allows."""
NEARLY = 0.99
"""Of the largest number of an output's dtype: from there on a rounding decides whether it overflows."""
FLOAT32_EPS = 1.6e-4
"""float32 is held to 1e-4 in relative L2: sums in any order stay far below, TF32 (3e-4) does not pass."""


@dataclass(frozen=True)
class Finding:
    """What a check found. `error` is missing where there is nothing to compare."""

    status: Status
    log: str = ""
    error: ErrorStats | None = None
    contest_passed: bool | None = None
    """The contest's verdict on the same outputs; None where the task is of no contest."""


@dataclass(frozen=True)
class _Bound:
    """What the errors of one output may be."""

    relative_l2: float
    per_rms: float
    """Of an element, as a multiple of the output's RMS ..."""
    per_size: float
    """... plus a multiple of the element itself."""


def check_form(definition: Definition, workload: Workload, outputs: Sequence[Any]) -> Finding | None:
    """Number, type, shape and dtype of what a kernel gave back; None where all is exact."""
    if len(outputs) != len(definition.outputs):
        log = f"{len(outputs)} outputs; {definition.name} has {len(definition.outputs)}"
        return Finding(Status.INCORRECT_SHAPE, log)
    axes = definition.axis_values(workload.axes)
    for (name, spec), output in zip(definition.outputs.items(), outputs, strict=True):
        if not isinstance(output, torch.Tensor):
            return Finding(Status.INCORRECT_DTYPE, f"output '{name}' is a {type(output).__name__}, no tensor")
        if type(output) is not torch.Tensor:
            kind = type(output).__name__
            return Finding(Status.REJECTED, f"output '{name}' is a {kind}: only plain tensors are compared")
        shape = tuple(axes[axis] for axis in spec.shape or ())
        if tuple(output.shape) != shape:
            log = f"output '{name}' has shape {tuple(output.shape)}, must be {shape}"
            return Finding(Status.INCORRECT_SHAPE, log)
        if output.dtype is not getattr(torch, spec.dtype):
            log = f"output '{name}' is {str(output.dtype).removeprefix('torch.')}, must be {spec.dtype}"
            return Finding(Status.INCORRECT_DTYPE, log)
    return None


def check_unchanged(definition: Definition, inputs: Inputs, pristine: Inputs) -> Finding | None:
    """Whether a kernel left its inputs as they were, bit for bit; None where it did."""
    for name, value, before in zip(definition.inputs, inputs, pristine, strict=True):
        if isinstance(value, torch.Tensor) and not torch.equal(_bits(value), _bits(before)):
            return Finding(Status.REJECTED, f"input '{name}' was changed by the kernel")
    return None


def check_values(
    definition: Definition,
    outputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    tolerance: Tolerance = BY_PRECISION,
) -> Finding:
    """Compare outputs with the float64 reference's; the worst output counts.

    Each pair has the same shape. Where the reference is infinite or NaN, so must the output be. Where it
    leaves the range of the output's dtype, the output may be infinite or the largest number.
    """
    finding = _our_verdict(definition, outputs, expected, tolerance)
    if tolerance.contest is None or any(o.shape != e.shape for o, e in zip(outputs, expected, strict=True)):
        return finding
    passed = all(
        _contest_passes(output, reference, tolerance.contest)
        for output, reference in zip(outputs, expected, strict=True)
    )
    return replace(finding, contest_passed=passed)


def relative_l2_bounds(
    definition: Definition, tolerance: Tolerance = BY_PRECISION
) -> dict[str, float | None]:
    """The largest relative L2 error that each output may have; None: it must be equal."""
    bounds: dict[str, float | None] = {}
    for name, spec in definition.outputs.items():
        dtype = getattr(torch, spec.dtype)
        eps = max(_eps(dtype), *_coarse(definition))
        bounds[name] = _bound(eps, name, tolerance).relative_l2 if dtype.is_floating_point else None
    return bounds


def _our_verdict(
    definition: Definition,
    outputs: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    tolerance: Tolerance,
) -> Finding:
    coarse = _coarse(definition)
    worst = ErrorStats(max_abs=0.0, max_rel=0.0, relative_l2=0.0)
    for name, output, reference in zip(definition.outputs, outputs, expected, strict=True):
        if output.shape != reference.shape:
            log = f"reference gives output '{name}' shape {tuple(reference.shape)}: the task is at fault"
            return Finding(Status.INCORRECT_SHAPE, log)
        if log := _non_finite(name, output, reference):
            return Finding(Status.INCORRECT_NUMERICAL, log)
        if output.dtype.is_floating_point:
            eps = max(_eps(output.dtype), *coarse)
            error, log = _float_error(name, output, reference, _bound(eps, name, tolerance))
        else:
            error, log = _exact_error(name, output, reference)
        worst = ErrorStats(
            max_abs=max(worst.max_abs, error.max_abs),
            max_rel=max(worst.max_rel, error.max_rel),
            relative_l2=max(worst.relative_l2, error.relative_l2),
        )
        if log:
            return Finding(Status.INCORRECT_NUMERICAL, log, worst)
    return Finding(Status.PASSED, "", worst)


def _coarse(definition: Definition) -> list[float]:
    """What no output can be more exact than: float32 sums, and the precision of the inputs."""
    return [FLOAT32_EPS, *(_eps(getattr(torch, spec.dtype)) for spec in definition.inputs.values())]


def _eps(dtype: torch.dtype) -> float:
    """Spacing at 1 of a 16- or 32-bit float; 0 for the rest. fp8 inputs are exact in what follows them."""
    if dtype is torch.float32:
        return FLOAT32_EPS
    return torch.finfo(dtype).eps if dtype in {torch.bfloat16, torch.float16} else 0.0


def _bound(eps: float, name: str, tolerance: Tolerance) -> _Bound:
    stated = tolerance.relative_l2.get(name)
    if stated is None:
        return _Bound(RELATIVE_L2_PER_EPS * eps, eps, 2 * eps)
    return _Bound(stated, LARGEST_OF_MANY * stated, 2 * eps)


def _contest_passes(output: torch.Tensor, reference: torch.Tensor, contest: ContestTolerance) -> bool:
    """FlashInfer-Bench's rule, in float32 against the reference rounded to the output's dtype."""
    failed = 0
    for out, ref in pieces(output, reference):
        x, y = out.float(), ref.to(out.dtype).float()
        if not x.isfinite().all():
            return False
        off = (x - y).abs()
        failed += int(((off > contest.atol) & (off / (y.abs() + 1e-8) > contest.rtol)).sum())
    return failed <= (1 - contest.matched_ratio) * output.numel()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _doubles(pair: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    return pair[0].double(), pair[1].double()


def _non_finite(name: str, output: torch.Tensor, reference: torch.Tensor) -> str:
    if not output.dtype.is_floating_point:
        return ""
    wrong = 0
    least_infinite = NEARLY * torch.finfo(output.dtype).max
    for out, ref in map(_doubles, pieces(output, reference)):
        strange = ~out.isfinite() | ~ref.isfinite()
        same = (out == ref) | (out.isnan() & ref.isnan())
        overflown = out.isinf() & (out.sign() * ref > least_infinite)
        wrong += int((strange & ~same & ~overflown).sum())
    return f"output '{name}': {wrong} of {output.numel()} elements are NaN or infinite" if wrong else ""


def _float_error(
    name: str, output: torch.Tensor, reference: torch.Tensor, bound: _Bound
) -> tuple[ErrorStats, str]:
    square = sum(float(ref.double().nan_to_num(0.0, 0.0, 0.0).square().sum()) for (ref,) in pieces(reference))
    rms = math.sqrt(square / max(reference.numel(), 1))
    difference, max_abs, max_rel, outside = 0.0, 0.0, 0.0, 0
    largest = torch.finfo(output.dtype).max
    for out, ref in map(_doubles, pieces(output, reference)):
        off = (out - ref.clamp(-largest, largest)).nan_to_num(0.0, 0.0, 0.0).abs()
        size = ref.abs().nan_to_num(0.0, 0.0, 0.0)
        difference += float(off.square().sum())
        if off.numel():
            max_abs = max(max_abs, float(off.max()))
            max_rel = max(max_rel, float((off / size.clamp_min(max(bound.per_rms * rms, 1e-300))).max()))
        outside += int((off > bound.per_rms * rms + bound.per_size * size).sum())
    l2 = math.sqrt(difference / square) if square else (0.0 if difference == 0 else 1.0)
    error = ErrorStats(max_abs=max_abs, max_rel=max_rel, relative_l2=l2)
    if l2 > bound.relative_l2:
        most = f"at most {bound.relative_l2:.3g}"
        return error, f"output '{name}': relative L2 error {l2:.3g} against float64, {most}"
    if outside:
        return error, f"output '{name}': {outside} of {output.numel()} elements off, by up to {max_abs:.3g}"
    return error, ""


def _exact_error(name: str, output: torch.Tensor, reference: torch.Tensor) -> tuple[ErrorStats, str]:
    off = [(out - ref).abs() for out, ref in map(_doubles, pieces(output, reference))]
    wrong = sum(int((piece != 0).sum()) for piece in off)
    worst = max((float(piece.max()) for piece in off if piece.numel()), default=0.0)
    share = wrong / max(output.numel(), 1)
    error = ErrorStats(max_abs=worst, max_rel=worst, relative_l2=math.sqrt(share))
    return error, f"output '{name}': {wrong} of {output.numel()} integers differ" if wrong else ""
