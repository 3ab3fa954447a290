"""How long one dependent load takes, by the memory that answers: one thread follows a chain of addresses."""

from __future__ import annotations

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, Int64, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "latency-l1": "How many cycles does a dependent load take that hits L1?",
    "latency-l2": "How many cycles does a dependent load take that hits L2?",
    "latency-hbm": "How many cycles does a dependent load take that goes to HBM?",
    "latency-tlb": "What more does a dependent load cost that touches a new 2 MiB page each time?",
    "latency-smem": "How many cycles does a dependent load from shared memory take?",
    "latency-dsmem": "How many cycles does a dependent load from another CTA's shared memory take?",
}
HOPS = 4096
SMEM_WORDS = 1024
LINE_BYTES = 128
PAGE_BYTES = 2 << 20


@cute.kernel
def chase_global(cursor: cute.Pointer, cycles: cute.Pointer, hops: Int32, cache: cutlass.Constexpr):
    """Follow addresses from the one in `cursor`, the next call from where this one ends.

    The first of two rounds warms up: a launch finds L1 empty.
    """
    place = cute.make_tensor(cursor, cute.make_layout(1))
    at, elapsed = place[0], Int32(0)
    for _ in cutlass.range(2, unroll=1):
        start = cute.arch.clock()
        for _ in cutlass.range(hops, unroll=16):
            at = cute.arch.inline_ptx(
                f"ld.global.{cache}.s64 {{$w0}}, [{{$r0}}];", write_only_types=[Int64], read_only_args=[at]
            )
        elapsed = cute.arch.clock() - start
    place[0] = at
    cute.make_tensor(cycles, cute.make_layout(1))[0] = elapsed


@cute.jit
def run_global(
    cursor: cute.Pointer,
    cycles: cute.Pointer,
    hops: Int32,
    stream: cuda.CUstream,
    cache: cutlass.Constexpr,
):
    chase_global(cursor, cycles, hops, cache).launch(grid=[1, 1, 1], block=[1, 1, 1], stream=stream)


@cute.kernel
def chase_shared(cycles: cute.Pointer, hops: Int32, ctas: cutlass.Constexpr):
    """CTA 0 follows a chain that lies in the shared memory of the last CTA of its cluster."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    sChain = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(SMEM_WORDS), 16)
    first = Int32(sChain.iterator.toint())
    space = "shared"
    if cutlass.const_expr(ctas > 1):
        space = "shared::cluster"
        first = cute.arch.inline_ptx(
            "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
            write_only_types=[Int32],
            read_only_args=[first, Int32(ctas - 1)],
        )
    for i in cutlass.range(tidx, SMEM_WORDS, 32):
        sChain[i] = first + 4 * ((i + 33) % SMEM_WORDS)
    cute.arch.sync_threads()
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
    if bidx == 0:  # noqa: SIM102 (the DSL has no `and` of dynamic values)
        if tidx == 0:
            at = first
            start = cute.arch.clock()
            for _ in cutlass.range(hops, unroll=16):
                at = cute.arch.inline_ptx(
                    f"ld.{space}.s32 {{$w0}}, [{{$r0}}];", write_only_types=[Int32], read_only_args=[at]
                )
            result = cute.make_tensor(cycles, cute.make_layout(2))
            result[1] = at
            result[0] = cute.arch.clock() - start
    if cutlass.const_expr(ctas > 1):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()


@cute.jit
def run_shared(cycles: cute.Pointer, hops: Int32, stream: cuda.CUstream, ctas: cutlass.Constexpr):
    chase_shared(cycles, hops, ctas).launch(
        grid=[ctas, 1, 1], block=[32, 1, 1], cluster=[ctas, 1, 1], stream=stream
    )


def compile_kernels() -> dict[str, Kernel]:
    return {
        "ca": Kernel(run_global, Int64, Int32, 1, cache="ca"),
        "cg": Kernel(run_global, Int64, Int32, 1, cache="cg"),
        "smem": Kernel(run_shared, Int32, 1, ctas=1),
        "dsmem": Kernel(run_shared, Int32, 1, ctas=2),
    }


def chain(nodes: int, stride_bytes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory that holds a closed chain over `nodes` places in random order, and a cursor at its start.

    With at most as many nodes as there are hops, each has been loaded before it is timed.
    """
    memory = torch.empty(nodes * stride_bytes // 8, dtype=torch.int64, device="cuda")
    order = torch.randperm(nodes, device="cuda")
    # Another line in each page, or all of them would fall into the same set of a cache.
    within = torch.randint(stride_bytes // LINE_BYTES, (nodes,), device="cuda") * LINE_BYTES
    places = order * stride_bytes + within[order]
    memory[places // 8] = memory.data_ptr() + places.roll(-1)
    return memory, (memory.data_ptr() + places[:1]).clone()


def measure(kernels: dict[str, Kernel], bench: Bench) -> None:
    cycles = torch.zeros(2, dtype=torch.int32, device="cuda")
    for claim, cache, nodes, stride, hops in (
        ("latency-l1", "ca", 128, LINE_BYTES, HOPS),
        ("latency-l2", "cg", 1 << 12, LINE_BYTES, HOPS),
        ("latency-hbm", "cg", 1 << 23, LINE_BYTES, HOPS),
        ("latency-tlb", "cg", 1 << 15, PAGE_BYTES, 512),  # few enough that no place is seen again
    ):
        memory, cursor = chain(nodes, stride)
        kernel: Any = kernels[cache]
        samples = bench.samples(lambda: kernel(cursor, cycles, hops), cycles[:1])  # noqa: B023
        setting = {"nodes": nodes, "stride_bytes": stride, "hops": hops, "cache": cache}
        bench.report(claim, setting, latency_cycles=[sample / hops for sample in samples])
        del memory
    for name in ("smem", "dsmem"):
        samples = bench.samples(lambda: kernels[name](cycles, HOPS), cycles[:1])  # noqa: B023
        bench.report(f"latency-{name}", {"hops": HOPS}, latency_cycles=[sample / HOPS for sample in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
