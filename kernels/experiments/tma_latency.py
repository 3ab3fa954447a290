"""How long a TMA load takes from its issue to the end of the wait, and how many small ones an SM issues."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from cutlass.cute.nvgpu import cpasync
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "tma-latency": "How long does a TMA load take that hits L2, by its size?",
    "tma-latency-hbm": "How long does one take that goes to HBM?",
    "tma-issue": "How many small TMA loads does an SM finish per microsecond, and at which rate of bytes?",
    "tma-bulk": "Is a bulk copy without a descriptor faster to return than a box?",
}
ROW_WORDS, LOOPS = 1024, 64
"""The tensor has rows of 4 KB; a box takes 128 bytes of each of its rows."""


@dataclass(frozen=True)
class Loads:
    """One warp of one CTA loads boxes one after the other, or `in_flight` of them at a time."""

    rows: int
    in_flight: int = 1
    bulk: bool = False

    @cute.jit
    def __call__(
        self, x: cute.Pointer, cycles: cute.Pointer, first: Int32, loops: Int32, stream: cuda.CUstream
    ):
        mX = cute.make_tensor(x, cute.make_layout((1 << 18, ROW_WORDS), stride=(ROW_WORDS, 1)))
        if cutlass.const_expr(self.bulk):
            load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Int32)
            mX = cute.make_tensor(x, cute.make_layout((32 * self.rows, (1 << 28) // (32 * self.rows))))
        else:
            box = cute.make_layout((self.rows, 32), stride=(32, 1))
            load, mX = cpasync.make_tiled_tma_atom(
                cpasync.CopyBulkTensorTileG2SOp(), mX, box, (self.rows, 32)
            )
        self.kernel(load, mX, cycles, first, loops).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)

    @cute.kernel
    def kernel(self, load: cute.CopyAtom, mX: cute.Tensor, cycles: cute.Pointer, first: Int32, loops: Int32):
        words = 32 * self.rows
        smem = cutlass.memory.SmemAllocator()
        full = smem.allocate_array(cutlass.Int64, 1)
        sX = smem.allocate_tensor(Int32, cute.make_layout((words, self.in_flight)), 128)
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(full, 1)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if cutlass.const_expr(not self.bulk):
            cpasync.prefetch_descriptor(load)
            boxes = cute.make_tensor(
                sX.iterator, cute.make_layout((self.rows, 32, self.in_flight), stride=(32, 1, words))
            )
            gX = cute.local_tile(mX, (self.rows, 32), (None, None))
            tXsX, tXgX = cpasync.tma_partition(
                load, 0, cute.make_layout(1), cute.group_modes(boxes, 0, 2), cute.group_modes(gX, 0, 2)
            )
        across = ROW_WORDS // 32
        start = cute.arch.clock()
        for i in cutlass.range(loops, unroll=1):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, 4 * words * self.in_flight)
            for j in cutlass.range_constexpr(self.in_flight):
                at = first + i * self.in_flight + j
                if cutlass.const_expr(self.bulk):
                    with cute.arch.elect_one():
                        cute.copy(load, mX[None, at], sX[None, j], mbar_ptr=full)
                else:
                    cute.copy(load, tXgX[None, at // across, at % across], tXsX[None, j], tma_bar_ptr=full)
            cute.arch.mbarrier_wait(full, i & 1)
        elapsed = cute.arch.clock() - start
        result = cute.make_tensor(cycles, cute.make_layout(2))
        result[1] = sX[0, 0]
        result[0] = elapsed


LATENCY = [Loads(rows) for rows in (1, 8, 32, 64, 128)]
ISSUE = [Loads(rows, in_flight=16) for rows in (1, 2, 4, 8, 16, 32)]
BULK = [Loads(rows, bulk=True) for rows in (1, 8, 32, 128)]


def compile_kernels() -> dict[Loads, Kernel]:
    return {loads: Kernel(loads, Int32, Int32, 1, 1) for loads in LATENCY + ISSUE + BULK}


def measure(kernels: dict[Loads, Kernel], bench: Bench) -> None:
    x = torch.zeros(1 << 28, dtype=torch.int32, device="cuda")  # 1 GiB
    cycles = torch.zeros(2, dtype=torch.int32, device="cuda")

    def per_load(loads: Loads, *, in_l2: bool) -> list[float]:
        """Cycles per load: always the same boxes, or each time other ones."""
        samples = []
        x.sum()  # leaves none of the first boxes in L2
        for repeat in range(16):
            first = 0 if in_l2 else repeat * LOOPS * loads.in_flight
            kernels[loads](x, cycles, first, LOOPS)
            samples.append(float(cycles[0].item()) / (LOOPS * loads.in_flight))
        return samples[1:]

    for loads in LATENCY:
        setting = {"bytes": 128 * loads.rows, "rows_of_128_bytes": loads.rows}
        bench.report("tma-latency", setting, latency_cycles=per_load(loads, in_l2=True))
        bench.report("tma-latency-hbm", setting, latency_cycles=per_load(loads, in_l2=False))
    for loads in ISSUE:
        samples = per_load(loads, in_l2=True)
        setting = {"bytes": 128 * loads.rows, "in_flight": loads.in_flight}
        bytes_per_clock = [128 * loads.rows / sample for sample in samples]
        bench.report("tma-issue", setting, cycles_per_load=samples, bytes_per_clock=bytes_per_clock)
    for loads in BULK:
        setting = {"bytes": 128 * loads.rows, "kind": "bulk"}
        bench.report("tma-bulk", setting, latency_cycles=per_load(loads, in_l2=True))


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
