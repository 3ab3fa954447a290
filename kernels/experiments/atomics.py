"""How many atomic additions per second: to one address, to many, in shared memory, in wider pieces."""

from __future__ import annotations

from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "atomics-spread": "How many Float32 atomic additions per second to different addresses in L2?",
    "atomics-one-address": "How many to one address by all threads of the GPU?",
    "atomics-warp-first": "What does summing over the warp before the atomic gain on one address?",
    "atomics-returning": "Does asking for the old value make an atomic slower?",
    "atomics-vector": "Does one atomic of four Float32 add faster than four of one?",
    "atomics-bf16x2": "Do packed bfloat16 additions run at the Float32 rate?",
    "atomics-bulk": "Does a bulk reduction from shared memory beat atomics of each thread?",
    "atomics-smem": "How many atomic additions per clock does shared memory do, integer and Float32?",
    "atomics-ticket": "What does a work counter cost: one atomic per CTA of a large grid?",
}
LOOPS, THREADS, CTAS_PER_SM = 512, 256, 4
"""Loops enough for a tenth of a millisecond: the timer's own microseconds must not count."""
REDUCTIONS = {
    "f32": ("red.global.add.f32 [{$r0}], {$r1};", 1),
    "f32-returning": ("atom.global.add.f32 {$w0}, [{$r0}], {$r1};", 1),
    "f32x4": ("red.global.add.v4.f32 [{$r0}], {{$r1}, {$r1}, {$r1}, {$r1}};", 4),
    "bf16x2": ("red.global.add.noftz.bf16x2 [{$r0}], {$r1};", 2),
}


@cute.kernel
def add_global(
    target: cute.Pointer, mask: Int32, loops: Int32, form: cutlass.Constexpr, warp_first: cutlass.Constexpr
):
    """Each thread adds 1.0 `loops` times: to a place of its own within `mask` + 1 words."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    ptx, width = REDUCTIONS[form]
    thread = bidx * THREADS + tidx
    one, old = Float32(1.0), Float32(0.0)
    if cutlass.const_expr(form == "bf16x2"):
        one = cute.arch.inline_ptx("mov.b32 {$w0}, 0x3F803F80;", write_only_types=[Int32])
    words = 1 if cutlass.const_expr(form == "bf16x2") else width
    for i in cutlass.range(loops, unroll=4):
        place = (thread + i * ctas * THREADS) * words & mask
        address = (target + place).toint()
        if cutlass.const_expr(warp_first):
            total = cute.arch.warp_reduction_sum(one)
            if tidx % 32 == 0:
                cute.arch.inline_ptx(ptx, read_only_args=[address, total])
        elif cutlass.const_expr("$w0" in ptx):
            old += cute.arch.inline_ptx(ptx, write_only_types=[Float32], read_only_args=[address, one])
        else:
            cute.arch.inline_ptx(ptx, read_only_args=[address, one])
    if old < 0.0:  # never: the old values must not be optimised away
        cute.make_tensor(target, cute.make_layout(1))[0] = old


@cute.jit
def run_global(
    target: cute.Pointer,
    ctas: Int32,
    mask: Int32,
    loops: Int32,
    stream: cuda.CUstream,
    form: cutlass.Constexpr,
    warp_first: cutlass.Constexpr,
):
    add_global(target, mask, loops, form, warp_first).launch(
        grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream
    )


@cute.kernel
def add_bulk(target: cute.Pointer, mask: Int32, loops: Int32):
    """Each CTA adds a tile of ones from shared memory, by one instruction of its first thread."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    sOnes = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(4 * THREADS), 128)
    for i in cutlass.range_constexpr(4):
        sOnes[i * THREADS + tidx] = Float32(1.0)
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_threads()
    if tidx == 0:
        source = Int32(sOnes.iterator.toint())
        for i in cutlass.range(loops, unroll=1):
            place = (bidx + i * ctas) * 4 * THREADS & mask
            cute.arch.inline_ptx(
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [{$r0}], [{$r1}], 4096;",
                read_only_args=[(target + place).toint(), source],
            )
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(8, read=True)
        cute.arch.cp_async_bulk_wait_group(0)


@cute.jit
def run_bulk(target: cute.Pointer, ctas: Int32, mask: Int32, loops: Int32, stream: cuda.CUstream):
    add_bulk(target, mask, loops).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


SHARED = {
    "s32": "red.shared.add.s32 [{$r0}], {$r1};",
    "f32": "red.shared.add.f32 [{$r0}], {$r1};",
}


@cute.kernel
def add_shared(cycles: cute.Pointer, stride: Int32, loops: Int32, form: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    sWords = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(THREADS), 128)
    sWords[tidx] = 0
    cute.arch.sync_threads()
    address = Int32((sWords.iterator + tidx * stride).toint())
    one = Int32(1) if cutlass.const_expr(form == "s32") else Float32(1.0)
    start = cute.arch.clock()
    for _ in cutlass.range(loops, unroll=4):
        cute.arch.inline_ptx(SHARED[form], read_only_args=[address, one])
    cute.arch.sync_threads()
    seen = sWords[0]
    result = cute.make_tensor(cycles, cute.make_layout(2 * THREADS))
    result[THREADS + tidx] = seen
    result[tidx] = cute.arch.clock() - start


@cute.jit
def run_shared(
    cycles: cute.Pointer, stride: Int32, loops: Int32, stream: cuda.CUstream, form: cutlass.Constexpr
):
    add_shared(cycles, stride, loops, form).launch(grid=[1, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.kernel
def take_ticket(counter: cute.Pointer, out: cute.Pointer, ticket: cutlass.Constexpr):
    """Each CTA learns its number from a counter, or from the hardware."""
    tidx, _, _ = cute.arch.thread_idx()
    number, _, _ = cute.arch.block_idx()
    sNumber = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(1), 4)
    if cutlass.const_expr(ticket):
        if tidx == 0:
            sNumber[0] = cute.arch.atomic_add(counter, Int32(1))
        cute.arch.sync_threads()
        number = sNumber[0]
    if tidx == 0:
        cute.make_tensor(out, cute.make_layout(1 << 20))[number & ((1 << 20) - 1)] = number


@cute.jit
def run_ticket(
    counter: cute.Pointer, out: cute.Pointer, ctas: Int32, stream: cuda.CUstream, ticket: cutlass.Constexpr
):
    take_ticket(counter, out, ticket).launch(grid=[ctas, 1, 1], block=[128, 1, 1], stream=stream)


def compile_kernels() -> dict[str, Kernel]:
    kernels = {form: Kernel(run_global, Float32, 1, 1, 1, form=form, warp_first=False) for form in REDUCTIONS}
    kernels["f32-warp-first"] = Kernel(run_global, Float32, 1, 1, 1, form="f32", warp_first=True)
    kernels["bulk"] = Kernel(run_bulk, Float32, 1, 1, 1)
    kernels |= {f"shared-{form}": Kernel(run_shared, Int32, 1, 1, form=form) for form in SHARED}
    kernels["ticket"] = Kernel(run_ticket, Int32, Int32, 1, ticket=True)
    kernels["no-ticket"] = Kernel(run_ticket, Int32, Int32, 1, ticket=False)
    return kernels


def measure(kernels: dict[str, Kernel], bench: Bench) -> None:
    target = torch.zeros(1 << 22, device="cuda")
    ctas = CTAS_PER_SM * torch.cuda.get_device_properties().multi_processor_count

    def rate(claim: str, form: str, places: int, additions_per_loop: int, loops: int) -> None:
        call = partial(kernels[form], target, ctas, places - 1, loops)
        if form not in {"bf16x2"}:
            target.zero_()
            call()
            if abs(float(target.double().sum()) / (additions_per_loop * loops) - 1) > 1e-3 and places > 1:
                raise RuntimeError(f"{form}: the sum is {target.double().sum()}: additions were lost")
        samples = bench.time_us(call, cold_l2=False, iterations=15)
        setting = {"form": form, "places": places, "ctas": ctas, "threads": THREADS}
        bench.report(
            claim, setting, additions_per_ns=[additions_per_loop * loops / us / 1e3 for us in samples]
        )

    threads = ctas * THREADS
    for claim, form, places, loops in (
        ("atomics-spread", "f32", 1 << 20, LOOPS),
        ("atomics-one-address", "f32", 1, 4),
        ("atomics-warp-first", "f32-warp-first", 1, 128),
        ("atomics-returning", "f32", 1 << 20, LOOPS),
        ("atomics-returning", "f32-returning", 1 << 20, LOOPS),
        ("atomics-vector", "f32x4", 1 << 20, LOOPS),
        ("atomics-bf16x2", "bf16x2", 1 << 20, LOOPS),
    ):
        rate(claim, form, places, threads * REDUCTIONS.get(form, ("", 1))[1], loops)
    rate("atomics-bulk", "bulk", 1 << 20, ctas * 4 * THREADS, LOOPS)

    cycles = torch.zeros(2 * THREADS, dtype=torch.int32, device="cuda")
    for form in SHARED:
        for stride in (0, 1):
            kernel = kernels[f"shared-{form}"]
            samples = bench.samples(lambda: kernel(cycles, stride, LOOPS), cycles[:THREADS])  # noqa: B023
            bench.report(
                "atomics-smem",
                {"form": form, "addresses": "one" if stride == 0 else "one each", "threads": THREADS},
                additions_per_clock=[LOOPS * THREADS / sample for sample in samples],
            )
    counter, out = (
        torch.zeros(1, dtype=torch.int32, device="cuda"),
        torch.zeros(1 << 20, dtype=torch.int32, device="cuda"),
    )
    grid = 132 * 256
    for name in ("no-ticket", "ticket"):
        samples = bench.time_us(partial(kernels[name], counter, out, grid), cold_l2=False)
        bench.report("atomics-ticket", {"variant": name, "ctas": grid}, kernel_us=samples)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
