"""What a launch costs on the device: kernels that do nothing, in one CUDA graph, one after the other."""

from __future__ import annotations

from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "launch-graph-node": "How far apart do dependent kernels of a CUDA graph start?",
    "launch-grid": "What does a launch cost per CTA when the grid has many that do nothing?",
    "launch-threads": "Does an empty CTA of 1024 threads cost more than one of 32?",
    "launch-smem": "Does asking for much shared memory make a launch slower?",
    "launch-cluster": "Does a launch with clusters cost more?",
    "launch-stream": "How far apart do launches from the host through torch reach the GPU?",
    "launch-copy-node": "What does a small memcpy or memset node cost against a kernel node?",
    "launch-copy-bandwidth": "Is a memcpy node as fast as an elementwise kernel on large buffers?",
}
REPEATS = 50


@cute.kernel
def nothing(out: cute.Pointer, run: Int32, smem_bytes: cutlass.Constexpr):
    """Writes only if `run` says so, which it never does."""
    tidx, _, _ = cute.arch.thread_idx()
    if cutlass.const_expr(smem_bytes > 0):
        sX = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(smem_bytes // 4), 16)
        if run == 1:
            sX[tidx] = tidx
            cute.arch.sync_threads()
            cute.make_tensor(out, cute.make_layout(1))[0] = sX[tidx ^ 1]
    elif run == 1:
        cute.make_tensor(out, cute.make_layout(1))[0] = tidx


@cute.jit
def launch(
    out: cute.Pointer,
    run: Int32,
    ctas: Int32,
    stream: cuda.CUstream,
    threads: cutlass.Constexpr,
    smem_bytes: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
):
    nothing(out, run, smem_bytes).launch(
        grid=[ctas, 1, 1],
        block=[threads, 1, 1],
        cluster=[cluster, 1, 1] if cutlass.const_expr(cluster > 0) else None,
        stream=stream,
    )


# claim, CTAs, threads, shared memory, cluster
CASES = [
    ("launch-graph-node", 1, 128, 0, 0),
    ("launch-graph-node", 132, 128, 0, 0),
    *(("launch-grid", 132 * many, 128, 0, 0) for many in (1, 16, 64, 256, 1024)),
    *(("launch-threads", 132 * 256, threads, 0, 0) for threads in (32, 256, 1024)),
    *(("launch-smem", 132, 128, smem_bytes, 0) for smem_bytes in (0, 16384, 101376, 230400)),
    *(("launch-smem", 132 * 64, 128, smem_bytes, 0) for smem_bytes in (0, 230400)),
    *(("launch-cluster", 128, 128, 0, cluster) for cluster in (0, 1, 2, 4, 8)),
    *(("launch-cluster", 128 * 64, 128, 0, cluster) for cluster in (0, 2, 8)),
]


def compile_kernels() -> dict[tuple[int, int, int], Kernel]:
    shapes = {(threads, smem_bytes, cluster) for _, _, threads, smem_bytes, cluster in CASES}
    return {
        shape: Kernel(launch, Int32, 1, 1, threads=shape[0], smem_bytes=shape[1], cluster=shape[2])
        for shape in shapes
    }


def measure(kernels: dict[tuple[int, int, int], Kernel], bench: Bench) -> None:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    calls = {
        case: partial(kernels[threads, smem_bytes, cluster], out, 0, ctas)
        for case, (_, ctas, threads, smem_bytes, cluster) in enumerate(CASES)
    }
    for case, samples in bench.compare_nodes_us(calls, repeats=REPEATS).items():
        claim, ctas, threads, smem_bytes, cluster = CASES[case]
        setting = {"ctas": ctas, "threads": threads, "smem_bytes": smem_bytes, "cluster": cluster}
        bench.report(claim, setting, node_us=samples)

    small, copy = (torch.zeros(1024, dtype=torch.int32, device="cuda") for _ in range(2))
    nodes = {
        "kernel": partial(torch.neg, small, out=copy),
        "memcpy": partial(copy.copy_, small),
        "memset": copy.zero_,
    }
    for name, samples in bench.compare_nodes_us(nodes, repeats=REPEATS).items():
        bench.report("launch-copy-node", {"node": name, "bytes": small.nbytes}, node_us=samples)
    large, copy = (torch.zeros(1 << 28, dtype=torch.int32, device="cuda") for _ in range(2))
    for name, call in (
        ("kernel", partial(torch.neg, large, out=copy)),
        ("memcpy", partial(copy.copy_, large)),
    ):
        samples = bench.time_us(call, iterations=10)
        gbps = [2 * large.nbytes / us / 1e3 for us in samples]
        bench.report("launch-copy-bandwidth", {"node": name, "bytes": large.nbytes}, read_and_write_gbps=gbps)

    call = partial(torch.neg, small, out=copy[:1024])
    samples = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(500):
            call()
        end.record()
        torch.cuda.synchronize()
        samples.append(1000 * start.elapsed_time(end) / 500)
    bench.report("launch-stream", {"call": "torch.neg with out=, 4 KB"}, launch_us=samples[2:])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
