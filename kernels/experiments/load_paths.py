"""Three ways into shared memory (cp.async, bulk copies, TMA boxes) against plain loads, at equal depth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute, pipeline
from cutlass.cute.nvgpu import LoadCacheMode, cpasync
from kwiki_kernels.experiment import Bench, Kernel, main
from reading import Reading, check, reading

CLAIMS = {
    "paths-best": "Which way of loading reads HBM fastest: plain loads, cp.async, bulk copies or TMA boxes?",
    "paths-stages": "How many stages of 16 KB does a TMA ring need to read HBM at full speed?",
    "paths-stage-bytes": "With 64 KB in the ring, how small may its stages be?",
    "paths-box-rows": "Does a box of many short rows load as fast as contiguous memory?",
    "paths-cp-async-depth": "How many stages does a cp.async ring need, with the same bytes per stage?",
}
READ_BYTES = 1 << 30
CONSUMERS = 256
ROW_WORDS = 2048
"""The matrix that boxes are cut from has rows of 8 KB; a box takes 128 bytes of each of its rows."""


@dataclass(frozen=True)
class Ring:
    """A persistent CTA an SM reads tiles of `stage_bytes` through a ring of `stages` and sums them."""

    path: str
    stage_bytes: int
    stages: int

    @cute.jit
    def __call__(self, x: cute.Pointer, sums: cute.Pointer, ctas: Int32, tiles: Int32, stream: cuda.CUstream):
        words, rows = self.stage_bytes // 4, self.stage_bytes // 128
        if cutlass.const_expr(self.path == "cp-async"):
            self.cp_async_kernel(x, sums, tiles).launch(
                grid=[ctas, 1, 1], block=[CONSUMERS, 1, 1], stream=stream
            )
        else:
            if cutlass.const_expr(self.path == "box"):
                matrix = cute.make_layout((tiles * words // ROW_WORDS, ROW_WORDS), stride=(ROW_WORDS, 1))
                load, mX = cpasync.make_tiled_tma_atom(
                    cpasync.CopyBulkTensorTileG2SOp(),
                    cute.make_tensor(x, matrix),
                    cute.make_layout((rows, 32), stride=(32, 1)),
                    (rows, 32),
                )
            else:
                load = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), Int32)
                mX = cute.make_tensor(x, cute.make_layout((words, tiles)))
            self.tma_kernel(load, mX, sums, tiles).launch(
                grid=[ctas, 1, 1], block=[CONSUMERS + 32, 1, 1], stream=stream
            )

    @cute.kernel
    def tma_kernel(self, load: cute.CopyAtom, mX: cute.Tensor, sums: cute.Pointer, tiles: Int32):
        """The last warp loads; the others sum each stage together."""
        tidx, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        words, rows = self.stage_bytes // 4, self.stage_bytes // 128
        smem = cutlass.memory.SmemAllocator()
        barriers = smem.allocate_array(cutlass.Int64, 2 * self.stages)
        sX = smem.allocate_tensor(Int32, cute.make_layout((words, self.stages)), 1024)
        ring = pipeline.PipelineTmaAsync.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, CONSUMERS // 32),
            tx_count=self.stage_bytes,
            barrier_storage=barriers,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )
        producer, consumer = ring.make_participants()
        if warp == CONSUMERS // 32:
            if cutlass.const_expr(self.path == "box"):
                boxes = cute.make_tensor(
                    sX.iterator, cute.make_layout((rows, 32, self.stages), stride=(32, 1, words))
                )
                gX = cute.local_tile(mX, (rows, 32), (None, None))
                tXsX, tXgX = cpasync.tma_partition(
                    load, 0, cute.make_layout(1), cute.group_modes(boxes, 0, 2), cute.group_modes(gX, 0, 2)
                )
            across = ROW_WORDS // 32
            for tile in cutlass.range(block, tiles, blocks, unroll=1):
                slot = producer.acquire_and_advance()
                if cutlass.const_expr(self.path == "box"):
                    cute.copy(
                        load,
                        tXgX[None, tile // across, tile % across],
                        tXsX[None, slot.index],
                        tma_bar_ptr=slot.barrier,
                    )
                else:
                    with cute.arch.elect_one():
                        cute.copy(load, mX[None, tile], sX[None, slot.index], mbar_ptr=slot.barrier)
            producer.tail()
        else:
            total = Int32(0)
            vX = cute.zipped_divide(sX, (4, 1))
            for _ in cutlass.range(block, tiles, blocks, unroll=1):
                slot = consumer.wait_and_advance()
                for i in cutlass.range_constexpr(words // 4 // CONSUMERS):
                    values = vX[None, (i * CONSUMERS + tidx, slot.index)].load()
                    total += values.reduce(cute.ReductionOp.ADD, Int32(0), 0)
                slot.release()
            cute.make_tensor(sums, cute.make_layout(blocks * CONSUMERS))[block * CONSUMERS + tidx] = total

    @cute.kernel
    def cp_async_kernel(self, x: cute.Pointer, sums: cute.Pointer, tiles: Int32):
        """Each thread copies and sums its own vectors, so that no barrier is needed."""
        tidx, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        blocks, _, _ = cute.arch.grid_dim()
        words = self.stage_bytes // 4
        each = words // 4 // CONSUMERS
        sX = cutlass.memory.SmemAllocator().allocate_tensor(
            Int32, cute.make_layout((4, CONSUMERS, each, self.stages)), 128
        )
        gX = cute.make_tensor(x, cute.make_layout((4, CONSUMERS, each, tiles)))
        atom = cute.make_copy_atom(
            cpasync.CopyG2SOp(cache_mode=LoadCacheMode.GLOBAL), Int32, num_bits_per_copy=128
        )
        mine = (tiles - block + blocks - 1) // blocks
        for ahead in cutlass.range_constexpr(self.stages - 1):
            if ahead < mine:
                for i in cutlass.range_constexpr(each):
                    cute.copy(atom, gX[None, tidx, i, block + ahead * blocks], sX[None, tidx, i, ahead])
            cute.arch.cp_async_commit_group()
        total = Int32(0)
        for turn in cutlass.range(mine, unroll=1):
            ahead = turn + self.stages - 1
            if ahead < mine:
                for i in cutlass.range_constexpr(each):
                    cute.copy(
                        atom,
                        gX[None, tidx, i, block + ahead * blocks],
                        sX[None, tidx, i, ahead % self.stages],
                    )
            cute.arch.cp_async_commit_group()
            cute.arch.cp_async_wait_group(self.stages - 1)
            for i in cutlass.range_constexpr(each):
                values = sX[None, tidx, i, turn % self.stages].load()
                total += values.reduce(cute.ReductionOp.ADD, Int32(0), 0)
        cute.make_tensor(sums, cute.make_layout(blocks * CONSUMERS))[block * CONSUMERS + tidx] = total


KB = 1024
CASES = [
    *(("paths-best", Ring(path, 16 * KB, 8)) for path in ("cp-async", "bulk", "box")),
    *(("paths-stages", Ring("bulk", 16 * KB, stages)) for stages in (1, 2, 3, 4, 6, 8, 12)),
    *(("paths-stage-bytes", Ring("bulk", kb * KB, 64 // kb)) for kb in (4, 8, 16, 32)),
    *(("paths-box-rows", Ring(path, 16 * KB, 8)) for path in ("bulk", "box")),
    *(("paths-cp-async-depth", Ring("cp-async", 16 * KB, stages)) for stages in (2, 3, 4, 6, 8, 12)),
]


def compile_kernels() -> tuple[Reading, dict[Ring, Kernel]]:
    rings = {ring for _, ring in CASES}
    return reading(bits=128, depth=4, threads=256), {ring: Kernel(ring, Int32, Int32, 1, 1) for ring in rings}


def measure(kernels: tuple[Reading, dict[Ring, Kernel]], bench: Bench) -> None:
    plain, rings = kernels
    x = torch.randint(-(1 << 31), 1 << 31, (READ_BYTES // 4,), dtype=torch.int32, device="cuda")
    sums = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count
    for per_sm in (1, 2, 4):
        steps, moved_bytes = plain.plan(READ_BYTES, per_sm * sms)
        launch = partial(plain.launch, x, sums, per_sm * sms, steps)
        samples = bench.time_us(launch, iterations=15)
        setting = {"path": "plain", "bytes_in_flight_per_sm": per_sm * 256 * 4 * 16}
        bench.report("paths-best", setting, read_gbps=[moved_bytes / us / 1e3 for us in samples])
    for claim, ring in CASES:
        tiles = READ_BYTES // ring.stage_bytes
        launch = partial(rings[ring], x, sums, sms, tiles)
        launch()
        check(x, sums, sms * CONSUMERS, READ_BYTES)
        samples = bench.time_us(launch, iterations=15)
        setting = {"path": ring.path, "stage_bytes": ring.stage_bytes, "stages": ring.stages}
        setting["ring_bytes_per_sm"] = ring.stage_bytes * ring.stages
        bench.report(claim, setting, read_gbps=[READ_BYTES / us / 1e3 for us in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
