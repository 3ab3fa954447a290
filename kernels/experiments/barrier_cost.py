"""What it costs to wait for each other: in a warp, a CTA, a group of warps, at an mbarrier, in a cluster."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "barrier-warp": "What does __syncwarp cost a converged warp?",
    "barrier-cta": "What does a barrier of the CTA cost, by its number of warps?",
    "barrier-named": "Is a named barrier of some warps cheaper than the barrier of the CTA?",
    "mbarrier-cta": "What does arriving and waiting at an mbarrier cost against the barrier of the CTA?",
    "mbarrier-ready": "What does waiting at an mbarrier cost whose phase is over already?",
    "mbarrier-hand-over": "How long do two warps take to give each other the turn once, by mbarriers?",
    "fence-proxy": "What does a fence between generic and asynchronous proxy cost?",
    "fence-gpu": "What does a fence after a store cost, for the CTA and for the whole GPU?",
    "barrier-cluster": "What does a barrier of the cluster cost, by its number of CTAs?",
    "barrier-cluster-relaxed": "Which part of it is the release of writes, which a relaxed arrival skips?",
}
LOOPS = 256


@cute.jit
def turn(kind: cutlass.Constexpr, warps: cutlass.Constexpr, barriers: cute.Pointer, place, phase: Int32):  # noqa: PLR0912
    """One meeting of the kind."""
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(tidx // 32)
    if cutlass.const_expr(kind == "warp"):
        cute.arch.sync_warp()
    elif cutlass.const_expr(kind == "cta"):
        cute.arch.sync_threads()
    elif cutlass.const_expr(kind == "named"):  # the CTA in two halves, each with its own barrier
        cute.arch.barrier(barrier_id=1 + warp // (warps // 2), number_of_threads=16 * warps)
    elif cutlass.const_expr(kind == "mbarrier"):
        cute.arch.mbarrier_arrive(barriers)
        cute.arch.mbarrier_wait(barriers, phase)
    elif cutlass.const_expr(kind == "ready"):
        cute.arch.mbarrier_wait(barriers, 1)  # of a fresh barrier the phase before is over
    elif cutlass.const_expr(kind == "hand-over"):  # two warps give each other the turn
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(barriers)
            cute.arch.mbarrier_wait(barriers + 1, phase)
        else:
            cute.arch.mbarrier_wait(barriers, phase)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(barriers + 1)
    elif cutlass.const_expr(kind == "fence-proxy"):
        cute.arch.fence_proxy("async.shared", space="cta")
    elif cutlass.const_expr(kind.startswith("store")):
        cute.arch.inline_ptx("st.relaxed.gpu.global.s32 [{$r0}], {$r1};", read_only_args=[place, phase])
        if cutlass.const_expr("cta" in kind):
            cute.arch.fence_acq_rel_cta()
        if cutlass.const_expr("gpu" in kind):
            cute.arch.fence_acq_rel_gpu()
    elif cutlass.const_expr(kind == "cluster"):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    elif cutlass.const_expr(kind == "cluster-relaxed"):
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()


@cute.kernel
def meet(
    cycles: cute.Pointer,
    loops: Int32,
    kind: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    barriers = cutlass.memory.SmemAllocator().allocate_array(cutlass.Int64, 2)
    if tidx == 0:
        count = 1 if cutlass.const_expr(kind == "hand-over") else 32 * warps
        cute.arch.mbarrier_init(barriers, count)
        cute.arch.mbarrier_init(barriers + 1, count)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    place = (cycles + 32 + tidx).toint()  # for stores: a word of its own for each thread
    start = cute.arch.clock()
    for i in cutlass.range(loops, unroll=4):
        turn(kind, warps, barriers, place, i & 1)
    elapsed = cute.arch.clock() - start
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    if bidx == 0:
        result = cute.make_tensor(cycles, cute.make_layout(warps))
        result[tidx // 32] = elapsed


@cute.jit
def run(
    cycles: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    kind: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
):
    meet(cycles, loops, kind, warps, ctas).launch(
        grid=[ctas, 1, 1], block=[32 * warps, 1, 1], cluster=[ctas, 1, 1], stream=stream
    )


CASES = [
    ("barrier-warp", "warp", 1, 1),
    *(("barrier-cta", "cta", warps, 1) for warps in (1, 2, 4, 8, 16, 32)),
    *(("barrier-named", "named", warps, 1) for warps in (4, 8, 16, 32)),
    *(("mbarrier-cta", "mbarrier", warps, 1) for warps in (1, 4, 8, 32)),
    *(("mbarrier-ready", "ready", warps, 1) for warps in (1, 4, 8)),
    ("mbarrier-hand-over", "hand-over", 2, 1),
    ("fence-proxy", "fence-proxy", 4, 1),
    *(("fence-gpu", kind, 4, 1) for kind in ("store", "store, fence cta", "store, fence gpu")),
    *(("barrier-cluster", "cluster", 4, ctas) for ctas in (2, 4, 8)),
    *(("barrier-cluster-relaxed", "cluster-relaxed", 4, ctas) for ctas in (2, 4, 8)),
]


def compile_kernels() -> list[Kernel]:
    return [Kernel(run, Int32, 1, kind=kind, warps=warps, ctas=ctas) for _, kind, warps, ctas in CASES]


def measure(kernels: list[Kernel], bench: Bench) -> None:
    for kernel, (claim, kind, warps, ctas) in zip(kernels, CASES, strict=True):
        cycles = torch.zeros(32 + 32 * warps, dtype=torch.int32, device="cuda")
        samples = bench.samples(lambda: kernel(cycles, LOOPS), cycles[:warps])  # noqa: B023
        setting = {"kind": kind, "warps": warps, "ctas": ctas, "turns": LOOPS}
        bench.report(claim, setting, turn_cycles=[sample / LOOPS for sample in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
