"""What reading scattered pieces of memory costs: rows at random places, and part of each sector or line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "gather-row-bytes": "How long must rows at random places be to be gathered at HBM's full speed?",
    "gather-l2": "How fast are the same rows gathered from a table that fits the L2?",
    "sector-use": "What does reading one word of every 32, 64, 128 or 256 bytes cost?",
    "gather-sorted": "Does sorting the indices help?",
}
THREADS, DEPTH = 256, 4
GATHERED_BYTES = 1 << 28


@dataclass(frozen=True)
class Gather:
    """Sums rows of `row_bytes`: each is read by as many lanes as it has pieces of `piece_bytes`."""

    row_bytes: int
    piece_bytes: int = 16

    @cute.jit
    def __call__(
        self, table: cute.Pointer, index: cute.Pointer, sums: cute.Pointer, ctas: Int32, stream: cuda.CUstream
    ):
        self.kernel(table, index, sums).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)

    @cute.kernel
    def kernel(self, table: cute.Pointer, index: cute.Pointer, sums: cute.Pointer):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        pieces, words = self.row_bytes // self.piece_bytes, self.piece_bytes // 4
        rows = THREADS * DEPTH // pieces  # of a CTA
        mIndex = cute.make_tensor(index + bidx * rows, cute.make_layout(rows))
        values = cute.make_rmem_tensor((words, DEPTH), Int32)
        for d in cutlass.range_constexpr(DEPTH):
            piece = d * THREADS + tidx
            row = cutlass.Int64(mIndex[piece // pieces])
            source = (table + row * (self.row_bytes // 4) + piece % pieces * words).align(self.piece_bytes)
            cute.autovec_copy(cute.make_tensor(source, cute.make_layout(words)), values[None, d])
        total = values.load().reduce(cute.ReductionOp.ADD, Int32(0), 0)
        if total == 0x12345678:  # hardly ever; the loads must not be optimised away
            cute.make_tensor(sums, cute.make_layout(1))[0] = total


@cute.kernel
def strided_kernel(table: cute.Pointer, sums: cute.Pointer, stride_words: Int32):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    total = Int32(0)
    values = cute.make_rmem_tensor(DEPTH, Int32)
    for d in cutlass.range_constexpr(DEPTH):
        at = (bidx * DEPTH + d) * THREADS + tidx
        values[d] = cute.make_tensor(table, cute.make_layout(1 << 30))[at * stride_words]
    total = values.load().reduce(cute.ReductionOp.ADD, Int32(0), 0)
    if total == 0x12345678:
        cute.make_tensor(sums, cute.make_layout(1))[0] = total


@cute.jit
def strided(table: cute.Pointer, sums: cute.Pointer, ctas: Int32, stride_words: Int32, stream: cuda.CUstream):
    strided_kernel(table, sums, stride_words).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


ROW_BYTES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 16384)


def compile_kernels() -> dict[int, Kernel]:
    kernels = {size: Kernel(Gather(size), Int32, Int32, Int32, 1) for size in ROW_BYTES}
    return kernels | {0: Kernel(strided, Int32, Int32, 1, 1)}


def measure(kernels: dict[int, Kernel], bench: Bench) -> None:
    table = torch.randint(-(1 << 31), 1 << 31, (1 << 30,), dtype=torch.int32, device="cuda")  # 4 GiB
    sums = torch.zeros(1, dtype=torch.int32, device="cuda")

    def gather(claim: str, row_bytes: int, table_bytes: int, order: str = "random") -> None:
        rows = GATHERED_BYTES // row_bytes
        index = torch.randint(table_bytes // row_bytes, (rows,), dtype=torch.int32, device="cuda")
        if order == "sorted":
            index = index.sort().values
        ctas = GATHERED_BYTES // (16 * THREADS * DEPTH)
        call = partial(kernels[row_bytes], table, index, sums, ctas)
        samples = bench.time_us(call, cold_l2=claim != "gather-l2", iterations=10)
        setting = {"row_bytes": row_bytes, "table_bytes": table_bytes, "order": order}
        bench.report(claim, setting, gathered_gbps=[GATHERED_BYTES / us / 1e3 for us in samples])

    for row_bytes in ROW_BYTES:
        gather("gather-row-bytes", row_bytes, 4 << 30)
        gather("gather-l2", row_bytes, 16 << 20)
    for order in ("random", "sorted"):
        gather("gather-sorted", 128, 4 << 30, order)
    words = 1 << 22
    for stride_bytes in (4, 32, 64, 128, 256):
        call = partial(kernels[0], table, sums, words // (THREADS * DEPTH), stride_bytes // 4)
        samples = bench.time_us(call, iterations=15)
        setting = {"one_word_in_bytes": stride_bytes, "words": words}
        bench.report(
            "sector-use",
            setting,
            kernel_us=samples,
            useful_gbps=[4 * words / us / 1e3 for us in samples],
            touched_gbps=[words * max(4, min(stride_bytes, 32)) / us / 1e3 for us in samples],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
