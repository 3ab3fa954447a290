"""Compiles, checks and compares the GEMMs of `hopper_gemm`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

import torch
from cutlass import BFloat16, Float8E4M3FN, Float32
from cutlass.utils import HardwareInfo
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel

RESIDENT = 0
"""As many CTAs as the GPU holds at the same time, in the clusters of the kernel."""
ONE_PER_TILE = -1
TORCH_DTYPES = {BFloat16: torch.bfloat16, Float8E4M3FN: torch.float8_e4m3fn}


def compile_gemms(gemms: Iterable[Gemm]) -> dict[Gemm, Kernel]:
    """A kernel for each of `gemms`, compiled once."""
    return {gemm: _compile(gemm) for gemm in dict.fromkeys(gemms)}


def _compile(gemm: Gemm) -> Kernel:
    out = Float32 if gemm.epilogue == "partial" else BFloat16
    return Kernel(gemm, gemm.dtype, gemm.dtype, out, 1, 1, 1, 1)


def operands(m: int, n: int, k: int, dtype: type = BFloat16) -> tuple[torch.Tensor, torch.Tensor]:
    """A [m, k] and B [n, k] of normal values, so that the power drawn is that of real work."""
    a, b = (torch.randn(rows, k, device="cuda").to(TORCH_DTYPES[dtype]) for rows in (m, n))
    return a, b


def grid_clusters(gemm: Gemm, m: int, n: int, ctas: int) -> int:
    """Clusters to launch for `ctas` CTAs, RESIDENT or ONE_PER_TILE; never more than there is work."""
    size = gemm.cluster[0] * gemm.cluster[1]
    works = m // gemm.tile[0] * (n // gemm.tile[1]) * gemm.splits // size
    if ctas == ONE_PER_TILE:
        return works
    return min(works, ctas // size or resident_clusters(size))


@cache
def resident_clusters(size: int) -> int:
    """How many clusters of `size` CTAs the GPU holds at one CTA per SM; asking compiles a kernel."""
    return int(HardwareInfo().get_max_active_clusters(size))


def make_call(
    gemm: Gemm,
    kernel: Kernel,
    a: torch.Tensor,
    b: torch.Tensor,
    ctas: int = RESIDENT,
    tolerance: float = 0.02,
) -> tuple[Callable[[], None], torch.Tensor]:
    """A call of the kernel, run once and checked, and its output [splits * m, n].

    Raises:
        RuntimeError: the relative error of the product exceeds `tolerance`.
    """
    (m, k), n = a.shape, b.shape[0]
    dtype = torch.float32 if gemm.epilogue == "partial" else torch.bfloat16
    c = torch.zeros(gemm.splits * m, n, dtype=dtype, device="cuda")
    call = partial(kernel, a, b, c, m, n, k, grid_clusters(gemm, m, n, ctas))
    call()
    got = c.view(gemm.splits, m, n).float().sum(0) if gemm.splits > 1 else c
    expected = a.float() @ b.float().T
    error = float((got.float() - expected).norm() / expected.norm())
    if not error < tolerance:
        raise RuntimeError(f"{gemm}: relative error {error:.3g}; the times of a wrong product are worthless")
    return call, c


def compare(
    bench: Bench,
    claim: str,
    kernels: Mapping[Gemm, Kernel],
    cases: Iterable[tuple[Gemm, int]],
    shape: tuple[int, int, int],
    rounds: int = 8,
) -> None:
    """Report TFLOP/s of each (kernel, CTAs) at m, n, k; n is cut to whole tiles."""
    m, columns, k = shape
    calls, flops = {}, {}
    for gemm, ctas in cases:
        n = columns // gemm.tile[1] * gemm.tile[1]
        a, b = operands(m, n, k, gemm.dtype)
        calls[gemm, ctas], _ = make_call(gemm, kernels[gemm], a, b, ctas)
        flops[gemm, ctas] = 2 * m * n * k
    iterations = max(4, min(20, round(1e13 / (2 * m * columns * k))))  # some 15 ms a round
    samples = bench.compare_us(calls, iterations=iterations, rounds=rounds)
    for (gemm, ctas), times_us in samples.items():
        setting = {"m": m, "n": columns // gemm.tile[1] * gemm.tile[1], "k": k, **describe(gemm, ctas)}
        tflops = [flops[gemm, ctas] / us / 1e6 for us in times_us]
        bench.report(claim, setting, tflops=tflops, kernel_us=times_us)


def describe(gemm: Gemm, ctas: int) -> dict[str, object]:
    """The choices of `gemm` as parameters of a report: what is left at its default is left out."""
    default = Gemm()
    names = (
        "stages",
        "cluster",
        "ping_pong",
        "registers",
        "group_m",
        "splits",
        "epilogue",
        "promote",
        "in_flight",
    )
    chosen = {name: getattr(gemm, name) for name in names if getattr(gemm, name) != getattr(default, name)}
    grid = {RESIDENT: "all that reside", ONE_PER_TILE: "one per tile"}.get(ctas, ctas)
    return {"tile": gemm.tile, "dtype": gemm.dtype.__name__, "stages": gemm.stages, **chosen, "ctas": grid}
