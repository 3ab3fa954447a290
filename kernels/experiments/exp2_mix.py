"""How many exp2 per clock an SM gives if some of them are computed by a polynomial instead of the MUFU."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "exp2-polynomial": "Is exp2 by a cubic polynomial as fast as the special function unit?",
    "exp2-mix": "Which share of polynomials gives the most exp2 per clock?",
    "exp2-scaled": "Does the multiply-add that softmax puts before exp2 change that share?",
    "exp2-error": "How large are the relative errors of both?",
}
VALUES, LOOPS, WARPS = 16, 64, 16
MAGIC = 1.5 * 2**23


@cute.jit
def by_polynomial(x: Float32) -> Float32:
    x = cute.arch.fmax(x, -126.0)
    t = x + MAGIC
    r = x - (t - MAGIC)
    p = ((0.05508868 * r + 0.24260405) * r + 0.69327623) * r + 0.99992895
    return (p.bitcast(Int32) + (t.bitcast(Int32) << 23)).bitcast(Float32)


@cute.kernel
def exp2_kernel(
    clocks: cute.Pointer,
    values: cute.Pointer,
    loops: Int32,
    polynomials: cutlass.Constexpr,
    scaled: cutlass.Constexpr,
):
    """Each thread puts its values through exp2 again and again; that they overflow changes no timing."""
    tidx, _, _ = cute.arch.thread_idx()
    mValues = cute.make_tensor(values, cute.make_layout((VALUES, 32 * WARPS)))
    x = cute.make_rmem_tensor(VALUES, Float32)
    cute.autovec_copy(mValues[None, tidx], x)
    cute.arch.sync_threads()
    start = cute.arch.clock()
    for _ in cutlass.range(loops, unroll=1):
        for i in cutlass.range_constexpr(VALUES):
            argument = x[i] * 0.9 - 0.1 if cutlass.const_expr(scaled) else x[i]
            if cutlass.const_expr(i * polynomials % VALUES < polynomials):
                x[i] = by_polynomial(argument)
            else:
                x[i] = cute.math.exp2(argument, fastmath=True)
    end = cute.arch.clock()
    cute.autovec_copy(x, mValues[None, tidx])
    result = cute.make_tensor(clocks, cute.make_layout((2, WARPS), stride=(WARPS, 1)))
    result[0, tidx // 32] = start
    result[1, tidx // 32] = end


@cute.jit
def run(
    clocks: cute.Pointer,
    values: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    polynomials: cutlass.Constexpr,
    scaled: cutlass.Constexpr,
):
    exp2_kernel(clocks, values, loops, polynomials, scaled).launch(
        grid=[1, 1, 1], block=[32 * WARPS, 1, 1], stream=stream
    )


SHARES = (0, 2, 4, 6, 8, 10, 16)


def compile_kernels() -> dict[tuple[int, bool], Kernel]:
    return {
        (share, scaled): Kernel(run, Int32, Float32, 1, polynomials=share, scaled=scaled)
        for share in SHARES
        for scaled in (False, True)
    }


def measure(kernels: dict[tuple[int, bool], Kernel], bench: Bench) -> None:
    clocks = torch.zeros(2, WARPS, dtype=torch.int32, device="cuda")
    for (share, scaled), kernel in kernels.items():
        samples = []
        for _ in range(21):
            values = torch.rand(VALUES * 32 * WARPS, device="cuda") - 1
            kernel(clocks, values, LOOPS)
            cycles = float((clocks[1].max() - clocks[0].min()).item())
            samples.append(VALUES * LOOPS * 32 * WARPS / cycles)
        claims = ["exp2-scaled"] if scaled else ["exp2-mix"]
        if share in {0, VALUES} and not scaled:
            claims.append("exp2-polynomial")
        for claim in claims:
            setting = {"by_polynomial": share, "of": VALUES, "multiply_add_before": scaled, "warps": WARPS}
            bench.report(claim, setting, exp2_per_clock_per_sm=samples[1:])
    for name, share in (("mufu", 0), ("polynomial", VALUES)):
        x = -32 * torch.rand(VALUES * 32 * WARPS, device="cuda")
        y = x.clone()
        kernels[share, False](clocks, y, 1)
        error = (y.double() / torch.exp2(x.double()) - 1).abs()
        bench.report(
            "exp2-error", {"by": name, "from": -32, "to": 0}, largest_relative_error=float(error.max())
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
