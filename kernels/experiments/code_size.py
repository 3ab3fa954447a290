"""At which size of a loop's body the instruction caches no longer keep up."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "code-size-loop": "Up to which body size does an unrolled loop run at full speed?",
    "code-size-straight": "How fast does code run that is executed once, as without a loop?",
}
INSTRUCTION_BYTES, CHAINS, WARPS = 16, 8, 16
KILOBYTES = (4, 16, 32, 48, 64, 96, 128)
EXECUTED = 1 << 15
"""Instructions of each warp, whatever the size of the body."""


@cute.kernel
def multiply_add(clocks: cute.Pointer, loops: Int32, body: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    value = cute.make_rmem_tensor(CHAINS, Int32)
    for i in cutlass.range_constexpr(CHAINS):
        value[i] = 0x3F800000 + tidx + i
    cute.arch.sync_threads()
    start = cute.arch.clock()
    for _ in cutlass.range(loops, unroll=1):
        # One piece of inline PTX holds many instructions, so that tracing stays short.
        for _ in cutlass.range_constexpr(body // 64):
            for i in cutlass.range_constexpr(CHAINS):
                value[i] = cute.arch.inline_ptx(
                    "{ .reg .b32 x; mov.b32 x, {$r0}; "
                    + 7 * "fma.rn.f32 x, x, x, x; "
                    + "fma.rn.f32 {$w0}, x, x, x; }",
                    write_only_types=[Int32],
                    read_only_args=[value[i]],
                )
    end = cute.arch.clock()
    total = Int32(0)
    for i in cutlass.range_constexpr(CHAINS):
        total += value[i]
    result = cute.make_tensor(clocks, cute.make_layout((3, WARPS), stride=(WARPS, 1)))
    result[2, tidx // 32] = total
    result[0, tidx // 32] = start
    result[1, tidx // 32] = end


@cute.jit
def run(clocks: cute.Pointer, loops: Int32, stream: cuda.CUstream, body: cutlass.Constexpr):
    multiply_add(clocks, loops, body).launch(grid=[1, 1, 1], block=[32 * WARPS, 1, 1], stream=stream)


def compile_kernels() -> dict[int, Kernel]:
    return {kb: Kernel(run, Int32, 1, body=kb * 1024 // INSTRUCTION_BYTES) for kb in KILOBYTES}


def measure(kernels: dict[int, Kernel], bench: Bench) -> None:
    clocks = torch.zeros(3, WARPS, dtype=torch.int32, device="cuda")
    for kb, kernel in kernels.items():
        body = kb * 1024 // INSTRUCTION_BYTES
        for claim, loops in (("code-size-loop", EXECUTED // body), ("code-size-straight", 1)):
            samples = []
            for _ in range(11):
                torch.cuda.synchronize()
                if claim == "code-size-straight":
                    kernels[4 if kb == 128 else 128](clocks, 1)  # another kernel's code in the caches
                kernel(clocks, loops)
                cycles = float((clocks[1].max() - clocks[0].min()).item())
                samples.append(WARPS * body * loops / cycles)
            setting = {"body_kilobytes": kb, "loops": loops, "warps": WARPS}
            bench.report(claim, setting, warp_instructions_per_clock=samples[1:])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
