"""What a sum over the threads of a warp, a CTA or a cluster takes, by how it is done; all get the sum."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "reduce-warp": "What does a sum over a warp cost by shuffles, Float32, and by redux.sync, integer?",
    "reduce-cta-slots": "What does a sum over a CTA cost with a slot per warp that every thread reads?",
    "reduce-cta-two-barriers": "What does it cost if one warp sums the slots and publishes the result?",
    "reduce-cta-tree": "What does a tree in shared memory cost, with a barrier per level?",
    "reduce-cta-atomic": "What does it cost by atomic additions in shared memory?",
    "reduce-cluster": "What does a sum over a cluster add, each CTA writing to the others' shared memory?",
}
LOOPS = 64


@cute.jit
def cta_sum(  # noqa: PLR0912
    value: Float32, slots: cute.Tensor, style: cutlass.Constexpr, warps: cutlass.Constexpr
) -> Float32:
    tidx, _, _ = cute.arch.thread_idx()
    lane, warp = tidx % 32, tidx // 32
    result = Float32(0.0)
    if cutlass.const_expr(style == "tree"):
        slots[tidx] = value
        cute.arch.sync_threads()
        for level in cutlass.range_constexpr((32 * warps).bit_length() - 1):
            half = 16 * warps >> level
            if tidx < half:
                slots[tidx] = slots[tidx] + slots[tidx + half]
            cute.arch.sync_threads()
        result = slots[0]
    elif cutlass.const_expr(style == "atomic"):
        if tidx == 0:
            slots[0] = 0.0
        cute.arch.sync_threads()
        value = cute.arch.warp_reduction_sum(value)
        if lane == 0:
            cute.arch.atomic_add(slots.iterator, value)
        cute.arch.sync_threads()
        result = slots[0]
    else:
        value = cute.arch.warp_reduction_sum(value)
        if lane == 0:
            slots[warp] = value
        cute.arch.sync_threads()
        if cutlass.const_expr(style == "slots"):
            partial = cute.make_tensor(slots.iterator, cute.make_layout(warps))
            result = partial.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        else:
            if warp == 0:
                total = Float32(0.0)
                if lane < warps:
                    total = slots[lane]
                total = cute.arch.warp_reduction_sum(total)
                if lane == 0:
                    slots[32] = total
            cute.arch.sync_threads()
            result = slots[32]
    cute.arch.sync_threads()  # the slots are used again
    return result


@cute.jit
def cluster_sum(
    value: Float32, slots: cute.Tensor, turn: Int32, warps: cutlass.Constexpr, ctas: cutlass.Constexpr
) -> Float32:
    """Each CTA writes its sum into a slot of each of the others; two sets of slots take turns."""
    tidx, _, _ = cute.arch.thread_idx()
    rank = cute.arch.block_idx_in_cluster()
    value = cta_sum(value, slots, "slots", warps)
    mine = slots.iterator + 64 + (turn & 1) * ctas
    if tidx < ctas:
        address = cute.arch.inline_ptx(
            "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
            write_only_types=[Int32],
            read_only_args=[Int32((mine + rank).toint()), tidx],
        )
        cute.arch.inline_ptx("st.shared::cluster.f32 [{$r0}], {$r1};", read_only_args=[address, value])
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
    partial = cute.make_tensor(mine, cute.make_layout(ctas))
    return partial.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)


@cute.kernel
def sum_again(
    cycles: cute.Pointer,
    sums: cute.Pointer,
    loops: Int32,
    style: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
):
    """Sum `loops` times; each sum, made small again, is what the next one starts from."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    slots = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(1024), 128)
    threads = 32 * warps * ctas
    # From memory, or the compiler sees that all lanes hold the same and leaves shuffles out.
    value = cute.make_tensor(sums, cute.make_layout(32 * warps))[tidx]
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    cute.arch.sync_threads()
    start = cute.arch.clock()
    if cutlass.const_expr(style == "redux"):
        count = value.to(Int32)
        for _ in cutlass.range(loops, unroll=1):
            count = (
                cute.arch.inline_ptx(
                    "redux.sync.add.s32 {$w0}, {$r0}, -1;", write_only_types=[Int32], read_only_args=[count]
                )
                >> 5
            )
        value = Float32(count)
    else:
        for turn in cutlass.range(loops, unroll=1):
            if cutlass.const_expr(style == "shuffle"):
                value = cute.arch.warp_reduction_sum(value)
            elif cutlass.const_expr(style == "cluster"):
                value = cluster_sum(value, slots, turn, warps, ctas)
            else:
                value = cta_sum(value, slots, style, warps)
            value *= 1 / threads
    elapsed = cute.arch.clock() - start
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    if bidx == 0:
        cute.make_tensor(cycles, cute.make_layout(32 * warps))[tidx] = elapsed
        cute.make_tensor(sums, cute.make_layout(32 * warps))[tidx] = value


@cute.jit
def run(
    cycles: cute.Pointer,
    sums: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    style: cutlass.Constexpr,
    warps: cutlass.Constexpr,
    ctas: cutlass.Constexpr,
):
    sum_again(cycles, sums, loops, style, warps, ctas).launch(
        grid=[ctas, 1, 1], block=[32 * warps, 1, 1], cluster=[ctas, 1, 1], stream=stream
    )


CASES = [
    ("reduce-warp", "shuffle", 1, 1),
    ("reduce-warp", "redux", 1, 1),
    *(("reduce-cta-slots", "slots", warps, 1) for warps in (4, 8, 16, 32)),
    *(("reduce-cta-two-barriers", "two barriers", warps, 1) for warps in (4, 8, 16, 32)),
    *(("reduce-cta-tree", "tree", warps, 1) for warps in (8, 32)),
    *(("reduce-cta-atomic", "atomic", warps, 1) for warps in (8, 32)),
    *(("reduce-cluster", "cluster", 8, ctas) for ctas in (2, 4, 8)),
]


def compile_kernels() -> list[Kernel]:
    return [
        Kernel(run, Int32, Float32, 1, style=style, warps=warps, ctas=ctas) for _, style, warps, ctas in CASES
    ]


def measure(kernels: list[Kernel], bench: Bench) -> None:
    for kernel, (claim, style, warps, ctas) in zip(kernels, CASES, strict=True):
        cycles = torch.zeros(32 * warps, dtype=torch.int32, device="cuda")
        sums = torch.zeros(32 * warps, device="cuda")
        sums.fill_(1.0)
        samples = bench.samples(lambda: kernel(cycles, sums, LOOPS), cycles)  # noqa: B023
        if not torch.allclose(sums, torch.ones_like(sums), rtol=1e-3):
            raise RuntimeError(f"{style}: the mean of ones came out as {sums[0]}: its times are worthless")
        setting = {"style": style, "warps": warps, "ctas": ctas, "turns": LOOPS}
        bench.report(claim, setting, sum_cycles=[sample / LOOPS for sample in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
