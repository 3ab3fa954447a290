"""How fast CTAs of a cluster read and write each other's shared memory, against their own and against L2."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "dsmem-read": "How many bytes per clock does an SM read from a neighbour's shared memory?",
    "dsmem-write": "How many does it write there?",
    "dsmem-cluster-size": "Does the size of the cluster change the bandwidth between its CTAs?",
    "dsmem-all": "What is left per SM if all clusters of the GPU exchange data at the same time?",
}
BYTES, LOOPS, WARPS, BODY = 32768, 32, 16, 4
# All four words are used, or the assembler loads only one.
READ = (
    "{ .reg .b32 w, x, y, z; ld.shared::cluster.v4.b32 {w, x, y, z}, [{$r0}]; "
    "add.s32 w, w, x; add.s32 y, y, z; add.s32 {$w0}, w, y; }"
)
WRITE = "st.shared::cluster.v4.b32 [{$r0}], {{$r1}, {$r1}, {$r1}, {$r1}};"


@dataclass(frozen=True)
class Exchange:
    """Every CTA reads or writes the shared memory of the CTA `distance` ranks further."""

    cluster: int
    distance: int
    write: bool = False

    @cute.jit
    def __call__(self, clocks: cute.Pointer, ctas: Int32, loops: Int32, stream: cuda.CUstream):
        self.kernel(clocks, loops).launch(
            grid=[ctas, 1, 1], block=[32 * WARPS, 1, 1], cluster=[self.cluster, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, clocks: cute.Pointer, loops: Int32):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        rank = cute.arch.block_idx_in_cluster()
        words = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(BYTES // 4), 128)
        for i in cutlass.range(tidx, BYTES // 4, 32 * WARPS):
            words[i] = i
        address = cute.arch.inline_ptx(
            "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
            write_only_types=[Int32],
            read_only_args=[Int32(words.iterator.toint()), (rank + self.distance) % self.cluster],
        )
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        value = tidx
        start = cute.arch.clock()
        for i in cutlass.range(loops, unroll=1):
            for j in cutlass.range_constexpr(BODY):
                # Other places in each turn, so that none is left out
                at = address + ((16 * tidx + (j * 32 * WARPS + i * 32) * 16) & (BYTES - 1))
                if cutlass.const_expr(self.write):
                    cute.arch.inline_ptx(WRITE, read_only_args=[at, value])
                else:
                    value += cute.arch.inline_ptx(READ, write_only_types=[Int32], read_only_args=[at])
        # Writes count once they have arrived: the barrier of the cluster waits for them.
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()
        end = cute.arch.clock()
        result = cute.make_tensor(clocks, cute.make_layout((1 << 16, 2)))
        result[bidx * WARPS + tidx // 32, 1] = value
        result[bidx * WARPS + tidx // 32, 0] = end - start


CASES = [
    ("dsmem-read", Exchange(2, 0), 2),
    ("dsmem-read", Exchange(2, 1), 2),
    ("dsmem-write", Exchange(2, 0, write=True), 2),
    ("dsmem-write", Exchange(2, 1, write=True), 2),
    *(("dsmem-cluster-size", Exchange(size, 1), size) for size in (2, 4, 8)),
    *(("dsmem-all", Exchange(size, 1), 128) for size in (2, 4, 8)),
    ("dsmem-all", Exchange(2, 1, write=True), 128),
]


def compile_kernels() -> dict[Exchange, Kernel]:
    return {exchange: Kernel(exchange, Int32, 1, 1) for exchange in {exchange for _, exchange, _ in CASES}}


def measure(kernels: dict[Exchange, Kernel], bench: Bench) -> None:
    clocks = torch.zeros(1 << 17, dtype=torch.int32, device="cuda")
    for claim, exchange, ctas in CASES:
        kernel = kernels[exchange]
        samples = bench.samples(lambda: kernel(clocks, ctas, LOOPS), clocks[: ctas * WARPS])  # noqa: B023
        moved_bytes = LOOPS * BODY * 16 * 32 * WARPS
        setting = {"cluster": exchange.cluster, "distance": exchange.distance, "ctas": ctas, "warps": WARPS}
        setting |= {"access": "write" if exchange.write else "read", "bytes_per_lane": 16}
        bench.report(claim, setting, bytes_per_clock_per_sm=[moved_bytes / sample for sample in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
