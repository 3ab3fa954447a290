"""How fast HBM is written: by stores of each thread, narrow and wide, with hints, and by bulk copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from cutlass.cute import nvgpu
from cutlass.cute.nvgpu import cpasync
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "store-width": "Do 32-bit stores of whole warps write HBM as fast as 128-bit ones?",
    "store-scattered": "What do stores cost that leave half of each 32-byte sector unwritten?",
    "store-hint": "Does the streaming hint on stores speed up writing?",
    "store-bulk": "Does a bulk copy from shared memory write faster than stores from registers?",
    "store-threads": "How many warps per SM do plain stores need to write at full speed?",
    "copy-ratio": "How fast are reading, writing and copying compared?",
}
BYTES = 1 << 30
STREAMING = {"store_cache_mode": nvgpu.StoreCacheMode.STREAMING}


@dataclass(frozen=True)
class Writer:
    """Fills memory with `value`; by `bits` a thread, a piece of 32 bytes in `spread`, or bulk copies."""

    bits: int = 128
    threads: int = 256
    hint: bool = False
    spread: int = 1
    bulk_bytes: int = 0
    source: bool = False
    """Copy from `x` instead."""

    @cute.jit
    def __call__(
        self, x: cute.Pointer, y: cute.Pointer, ctas: Int32, steps: Int32, value: Int32, stream: cuda.CUstream
    ):
        kernel = self.bulk_kernel if cutlass.const_expr(self.bulk_bytes > 0) else self.kernel
        kernel(x, y, steps, value).launch(grid=[ctas, 1, 1], block=[self.threads, 1, 1], stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Pointer, y: cute.Pointer, steps: Int32, value: Int32):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        words = self.bits // 32
        all_threads = ctas * self.threads
        layout = cute.make_layout((words, steps * all_threads), stride=(1, words * self.spread))
        mX, mY = cute.make_tensor(x, layout), cute.make_tensor(y, layout)
        load = cute.make_copy_atom(nvgpu.CopyUniversalOp(), Int32, num_bits_per_copy=self.bits)
        hint = STREAMING if self.hint else {}
        store = cute.make_copy_atom(nvgpu.CopyR2GOp(), Int32, num_bits_per_copy=self.bits, **hint)
        values = cute.make_rmem_tensor(words, Int32)
        values.fill(value)
        for step in cutlass.range(steps, unroll=4):
            at = step * all_threads + bidx * self.threads + tidx
            if cutlass.const_expr(self.source):
                cute.copy(load, mX[None, at], values)
            cute.copy(store, values, mY[None, at])

    @cute.kernel
    def bulk_kernel(self, _x: cute.Pointer, y: cute.Pointer, steps: Int32, value: Int32):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        words = self.bulk_bytes // 4
        sY = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(words), 128)
        for i in cutlass.range(tidx, words, self.threads):
            sY[i] = value
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()
        mY = cute.make_tensor(y, cute.make_layout((words, steps * ctas)))
        store = cute.make_copy_atom(cpasync.CopyBulkS2GOp(), Int32)
        if tidx == 0:
            for step in cutlass.range(steps, unroll=1):
                cute.copy(store, sY, mY[None, step * ctas + bidx])
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(8, read=True)
            cute.arch.cp_async_bulk_wait_group(0)


WIDE = Writer()
# claim, writer, CTAs per SM
CASES = [
    *(("store-width", Writer(bits=bits), 8) for bits in (32, 64, 128)),
    *(("store-scattered", Writer(spread=spread), 8) for spread in (1, 2)),
    *(("store-hint", Writer(hint=hint), 8) for hint in (False, True)),
    ("store-bulk", WIDE, 8),
    *(("store-bulk", Writer(threads=128, bulk_bytes=size), 1) for size in (2048, 8192, 32768)),
    *(("store-threads", WIDE, per_sm) for per_sm in (1, 2, 4, 8)),
    ("copy-ratio", WIDE, 8),
    ("copy-ratio", Writer(source=True), 8),
]


def compile_kernels() -> dict[Writer, Kernel]:
    return {writer: Kernel(writer, Int32, Int32, 1, 1, 1) for writer in {writer for _, writer, _ in CASES}}


def measure(kernels: dict[Writer, Kernel], bench: Bench) -> None:
    x = torch.full((BYTES // 4,), 7, dtype=torch.int32, device="cuda")
    y = torch.zeros_like(x)
    sms = torch.cuda.get_device_properties().multi_processor_count
    for claim, writer, per_sm in CASES:
        ctas = per_sm * sms
        step_bytes = ctas * (writer.bulk_bytes or writer.threads * writer.bits // 8)
        steps = BYTES // (step_bytes * writer.spread)
        written = steps * step_bytes
        y.zero_()
        call = partial(kernels[writer], x, y, ctas, steps, 7)
        call()
        if int((y == 7).sum()) * 4 != written:
            raise RuntimeError(f"{writer}: wrong values; their times are worthless")
        samples = bench.time_us(call, iterations=12)
        setting = {
            "bits": writer.bits, "warps_per_sm": per_sm * writer.threads // 32, "streaming_hint": writer.hint,
            "bulk_bytes": writer.bulk_bytes, "of_which_written": f"1 in {writer.spread}",
            "reads_too": writer.source,
        }  # fmt: skip
        bench.report(claim, setting, written_gbps=[written / us / 1e3 for us in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
