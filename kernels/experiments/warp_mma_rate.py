"""How much of Hopper's tensor cores the warp-level mma.sync reaches, as kernels for older chips use it."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import BFloat16, Float32, Int32, cute
from cutlass.cute.nvgpu import warp
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "warp-mma-rate": "Which rate does mma.sync m16n8k16 reach on Hopper, by the number of warps?",
    "warp-mma-latency": "How long does one mma.sync take whose accumulator the next one needs?",
}
LOOPS = 256


@cute.kernel
def products(
    clocks: cute.Pointer,
    loops: Int32,
    tiled_mma: cute.TiledMma,
    warps: cutlass.Constexpr,
    chains: cutlass.Constexpr,
):
    """Each warp adds into `chains` accumulators of its own; A and B are ones in registers."""
    tidx, _, _ = cute.arch.thread_idx()
    tCrA = cute.make_rmem_tensor(tiled_mma.partition_shape_A((16, 16)), BFloat16)
    tCrB = cute.make_rmem_tensor(tiled_mma.partition_shape_B((8, 16)), BFloat16)
    tCrA.fill(1.0)
    tCrB.fill(1.0)
    accumulators = [
        cute.make_rmem_tensor(tiled_mma.partition_shape_C((16, 8)), Float32) for _ in range(chains)
    ]
    for acc in accumulators:
        acc.fill(0.0)
    cute.arch.sync_threads()
    start = cute.arch.clock()
    for _ in cutlass.range(loops, unroll=4):
        for acc in accumulators:
            cute.gemm(tiled_mma, acc, tCrA, tCrB, acc)
    end = cute.arch.clock()
    total = Float32(0.0)
    for acc in accumulators:
        total += acc.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    result = cute.make_tensor(clocks, cute.make_layout((3, warps), stride=(warps, 1)))
    result[2, tidx // 32] = total.to(Int32)
    result[0, tidx // 32] = start
    result[1, tidx // 32] = end


@cute.jit
def run(
    clocks: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    warps: cutlass.Constexpr,
    chains: cutlass.Constexpr,
):
    tiled_mma = cute.make_tiled_mma(warp.MmaF16BF16Op(BFloat16, Float32, (16, 8, 16)))
    products(clocks, loops, tiled_mma, warps, chains).launch(
        grid=[1, 1, 1], block=[32 * warps, 1, 1], stream=stream
    )


CASES = [
    *(("warp-mma-rate", warps, 8) for warps in (4, 8, 16)),
    ("warp-mma-latency", 1, 1),
]


def compile_kernels() -> list[Kernel]:
    return [Kernel(run, Int32, 1, warps=warps, chains=chains) for _, warps, chains in CASES]


def measure(kernels: list[Kernel], bench: Bench) -> None:
    for kernel, (claim, warps, chains) in zip(kernels, CASES, strict=True):
        clocks = torch.zeros(3, warps, dtype=torch.int32, device="cuda")
        cycles = []
        for _ in range(21):
            kernel(clocks, LOOPS)
            cycles.append(float((clocks[1].max() - clocks[0].min()).item()))
        if int(clocks[2, 0]) != 4 * 16 * LOOPS * chains:
            raise RuntimeError(f"the products summed to {clocks[2, 0]}: times of wrong results are worthless")
        flops = 2 * 16 * 8 * 16 * warps * chains * LOOPS
        bench.report(
            claim,
            {"warps": warps, "accumulators": chains},
            flop_per_clock_per_sm=[flops / sample for sample in cycles[1:]],
            instruction_cycles=[sample / (LOOPS * chains) for sample in cycles[1:]],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
