"""How many results per clock an SM gives, instruction by instruction, and how long one takes."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

# Operands are 32-bit registers of any type: PTX instructions take them where sizes agree.
INSTRUCTIONS = {
    "fma-f32": ("How many Float32 multiply-adds per clock?", "fma.rn.f32 {w}, {r}, {r}, {r};"),
    "fma-bf16x2": (
        "Does a packed bfloat16 multiply-add double the Float32 rate?",
        "fma.rn.bf16x2 {w}, {r}, {r}, {r};",
    ),
    "max-f32": ("Is a Float32 maximum as fast as an addition?", "max.f32 {w}, {r}, {c};"),
    "ex2-f32": (
        "How many exp2 per clock does the special function unit give?",
        "ex2.approx.ftz.f32 {w}, {r};",
    ),
    "ex2-bf16x2": ("Does packed bfloat16 double the rate of exp2?", "ex2.approx.ftz.bf16x2 {w}, {r};"),
    "rsqrt-f32": ("How many reciprocal square roots per clock?", "rsqrt.approx.ftz.f32 {w}, {r};"),
    "tanh-f32": ("How many hardware tanh per clock?", "tanh.approx.f32 {w}, {r};"),
    "div-full-f32": ("What does an approximate Float32 division cost?", "div.full.f32 {w}, {c}, {r};"),
    "div-rn-f32": ("What does an IEEE Float32 division cost?", "div.rn.f32 {w}, {c}, {r};"),
    "cvt-bf16x2": (
        "How fast are two Float32 packed into bfloat16?",
        "cvt.rn.bf16x2.f32 {w}, {r}, {c};",
    ),
    "cvt-e4m3x2": (
        "How fast are two Float32 packed into e4m3?",
        # Both halves of a register: a second instruction would have to clear or keep the other one.
        "{{ .reg .b16 h, l; cvt.rn.satfinite.e4m3x2.f32 l, {r}, {c};"
        " cvt.rn.satfinite.e4m3x2.f32 h, {c}, {r}; mov.b32 {w}, {{l, h}}; }}",
    ),
    "cvt-from-e4m3x2": (
        "How fast are two e4m3 unpacked into half precision?",
        "{{ .reg .b16 h, l; mov.b32 {{h, l}}, {r}; cvt.rn.f16x2.e4m3x2 {w}, h; }}",
    ),
    "mad-s32": ("How many 32-bit integer multiply-adds per clock?", "mad.lo.s32 {w}, {r}, {r}, {r};"),
    "lop3-b32": ("How many three-input logic operations per clock?", "lop3.b32 {w}, {r}, {c}, {r}, 0x96;"),
    "prmt-b32": ("How many byte permutes per clock?", "prmt.b32 {w}, {r}, {c}, 0x6420;"),
    "popc-b32": ("How many population counts per clock?", "popc.b32 {w}, {r};"),
    "shfl-bfly": (
        "How many lanes does a warp shuffle move per clock?",
        "shfl.sync.bfly.b32 {w}, {r}, 1, 31, -1;",
    ),
    "redux-add-s32": ("How fast is redux.sync?", "redux.sync.add.s32 {w}, {r}, -1;"),
    "vote-ballot": (
        "How fast is a ballot?",
        # A comparison has to make the predicate: 15 votes more, of one instruction each, outweigh it.
        "{{ .reg .pred p; setp.ne.b32 p, {r}, 0;"
        + " vote.sync.any.pred p, p, -1;" * 15
        + " vote.sync.ballot.b32 {w}, p, -1; }}",
    ),
    "match-any": ("How fast is match.any?", "match.any.sync.b32 {w}, {r}, -1;"),
}
COUNTS = {"cvt-e4m3x2": 2, "vote-ballot": 16}
"""Instructions of the kind in a form that has more than one, each waiting for the one before."""
CLAIMS = {f"rate-{name}": question for name, (question, _) in INSTRUCTIONS.items()}
CHAINS, BODY, LOOPS = 8, 128, 16
"""Chains per thread, instructions of the kind in the body of the loop, turns of the loop."""
WARPS = 32


@cute.kernel
def chains_kernel(
    clocks: cute.Pointer,
    loops: Int32,
    ptx: cutlass.Constexpr,
    count: cutlass.Constexpr,
    chains: cutlass.Constexpr,
    warps: cutlass.Constexpr,
):
    """Every thread runs `chains` independent chains of the `count` instructions in `ptx`; clocks come out."""
    tidx, _, _ = cute.arch.thread_idx()
    value = cute.make_rmem_tensor(chains, Int32)
    for i in cutlass.range_constexpr(chains):
        value[i] = 0x3F800000 + tidx + i  # near 1.0
    other = Int32(0x3F800001) + (tidx & 1)
    cute.arch.sync_threads()
    start = cute.arch.clock()
    for _ in cutlass.range(loops, unroll=1):
        for _ in cutlass.range_constexpr(BODY // (chains * count)):
            for i in cutlass.range_constexpr(chains):
                value[i] = cute.arch.inline_ptx(
                    ptx, write_only_types=[Int32], read_only_args=[value[i], other]
                )
    end = cute.arch.clock()
    total = Int32(0)
    for i in cutlass.range_constexpr(chains):
        total += value[i]
    result = cute.make_tensor(clocks, cute.make_layout((3, warps), stride=(warps, 1)))
    result[2, tidx // 32] = total
    result[0, tidx // 32] = start
    result[1, tidx // 32] = end


@cute.jit
def run(
    clocks: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    ptx: cutlass.Constexpr,
    count: cutlass.Constexpr,
    chains: cutlass.Constexpr,
    warps: cutlass.Constexpr,
):
    chains_kernel(clocks, loops, ptx, count, chains, warps).launch(
        grid=[1, 1, 1], block=[32 * warps, 1, 1], stream=stream
    )


def compile_kernels() -> dict[str, tuple[Kernel, Kernel]]:
    """A kernel of many chains for the rate and one of a single chain for the latency."""
    kernels = {}
    for name, (_, form) in INSTRUCTIONS.items():
        ptx = form.format(w="{$w0}", r="{$r0}", c="{$r1}")
        count = COUNTS.get(name, 1)
        rate = Kernel(run, Int32, 1, ptx=ptx, count=count, chains=CHAINS, warps=WARPS)
        latency = Kernel(run, Int32, 1, ptx=ptx, count=count, chains=1, warps=1)
        kernels[name] = (rate, latency)
    return kernels


def elapsed_cycles(kernel: Kernel, warps: int, repeats: int = 20) -> list[float]:
    """From the first warp's start to the last warp's end, cycles."""
    clocks = torch.zeros(3, warps, dtype=torch.int32, device="cuda")
    samples = []
    for _ in range(repeats + 1):
        kernel(clocks, LOOPS)
        first, last = clocks[0].min(), clocks[1].max()
        samples.append(float((last - first).item()))
    return samples[1:]


def measure(kernels: dict[str, tuple[Kernel, Kernel]], bench: Bench) -> None:
    for name, (rate, latency) in kernels.items():
        executed = 32 * WARPS * BODY * LOOPS
        bench.report(
            f"rate-{name}",
            {"instruction": INSTRUCTIONS[name][1], "warps_per_sm": WARPS, "chains_per_thread": CHAINS},
            lanes_per_clock_per_sm=[executed / cycles for cycles in elapsed_cycles(rate, WARPS)],
            latency_cycles=[cycles / (BODY * LOOPS) for cycles in elapsed_cycles(latency, 1)],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
