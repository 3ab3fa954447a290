"""A GEMM for Hopper whose parts can be exchanged, for the experiments that ask what each part is worth.

C[m, n] = A[m, k] B[n, k]^T. One warp loads with TMA, two warpgroups multiply, cooperatively (each has
half of the rows of a tile) or in ping-pong (each has a tile of its own). Sizes must be multiples of the
tile; there is no code for ragged edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.hopper_helpers as sm90
from cutlass import BFloat16, Float32, Int32, cute, pipeline
from cutlass.cute.nvgpu import OperandMajorMode, cpasync
from cutlass.tensor_utils import LayoutEnum
from hopper_roles import CONSUMERS, EPILOGUE_STAGES, WARPGROUP, Roles

ROW = LayoutEnum.ROW_MAJOR


@dataclass(frozen=True)
class Gemm(Roles):
    """The kernel for one set of choices."""

    @cute.jit
    def __call__(
        self, a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32,
        clusters: Int32, stream: cuda.CUstream,
    ):  # fmt: skip
        tile_m, tile_n, tile_k = self.tile
        k = cute.assume(k, divby=16)
        n = cute.assume(n, divby=16)
        mA = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))
        mB = cute.make_tensor(b, cute.make_layout((n, k), stride=(k, 1)))
        mC = cute.make_tensor(c, cute.make_layout((m * self.splits, n), stride=(n, 1)))
        tiled_mma = sm90.make_trivial_tiled_mma(
            self.dtype, self.dtype, OperandMajorMode.K, OperandMajorMode.K, Float32,
            (1 if self.ping_pong else CONSUMERS, 1, 1), (64, tile_n),
        )  # fmt: skip
        a_layout = sm90.make_smem_layout_a(ROW, self.tile, self.dtype, self.stages)
        b_layout = sm90.make_smem_layout_b(ROW, self.tile, self.dtype, self.stages)
        c_layout = sm90.make_smem_layout_epi(BFloat16, ROW, self.slice_mn, EPILOGUE_STAGES)
        stage = (None, None, 0)
        # CTAs along N share A, those along M share B.
        tma_a, tA = self.load(mA, cute.slice_(a_layout, stage), (tile_m, tile_k), self.cluster[1])
        tma_b, tB = self.load(mB, cute.slice_(b_layout, stage), (tile_n, tile_k), self.cluster[0])
        tma_c, tC = tma_a, mC
        if cutlass.const_expr(self.epilogue == "tma"):
            tma_c, tC = cpasync.make_tiled_tma_atom(
                cpasync.CopyBulkTensorTileS2GOp(), mC, cute.slice_(c_layout, stage), self.slice_mn
            )
        kernel = self.ping_pong_kernel if cutlass.const_expr(self.ping_pong) else self.cooperative_kernel
        kernel(tma_a, tA, tma_b, tB, tma_c, tC, tiled_mma, a_layout, b_layout, c_layout, m, n, k).launch(
            grid=[*self.cluster, clusters],
            block=[WARPGROUP * (1 + CONSUMERS), 1, 1],
            cluster=[*self.cluster, 1],
            min_blocks_per_mp=1,
            stream=stream,
        )

    def load(self, tensor, layout, box, receivers):
        if receivers == 1:
            return cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), tensor, layout, box)
        op = cpasync.CopyBulkTensorTileG2SMulticastOp()
        return cpasync.make_tiled_tma_atom(op, tensor, layout, box, num_multicast=receivers)

    @cute.kernel
    def cooperative_kernel(
        self, tma_a: cute.CopyAtom, tA: cute.Tensor, tma_b: cute.CopyAtom, tB: cute.Tensor,
        tma_c: cute.CopyAtom, mC: cute.Tensor, tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout, c_layout: cute.ComposedLayout, m: Int32, n: Int32, k: Int32,
    ):  # fmt: skip
        tidx, _, _ = cute.arch.thread_idx()
        _, _, z = cute.arch.block_idx()
        _, _, grid_z = cute.arch.grid_dim()
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        mainloop, sA, sB, sC, _ = self.allocate(a_layout, b_layout, c_layout, CONSUMERS * WARPGROUP)
        producer, _ = mainloop.make_participants()
        tiles_m, tiles_n = m // self.tile[0], n // self.tile[1]
        k_tiles = k // (self.tile[2] * self.splits)
        works = tiles_m * tiles_n * self.splits // (self.cluster[0] * self.cluster[1])
        if warp_idx < 4:
            if cutlass.const_expr(self.registers is not None):
                cute.arch.setmaxregister_decrease(self.registers[0])
            if warp_idx == 0:
                self.produce(producer, tma_a, tA, tma_b, tB, sA, sB, works, tiles_m, tiles_n, k_tiles)
        else:
            if cutlass.const_expr(self.registers is not None):
                cute.arch.setmaxregister_increase(self.registers[1])
            thread = tidx - WARPGROUP
            tCrA, tCrB, acc, total = self.fragments(tiled_mma, thread, sA, sB)
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            for work in cutlass.range(z, works, grid_z, unroll=1):
                tile_m, tile_n, split = self.place(work, tiles_m, tiles_n)
                state, done = self.multiply(mainloop, state, tiled_mma, tCrA, tCrB, acc, total, k_tiles)
                self.drain(mainloop, done)
                result = total if cutlass.const_expr(self.promote > 0) else acc
                self.write(
                    tma_c, mC, sC, tiled_mma, thread, result, split * tiles_m + tile_m, tile_n, warp_idx - 4
                )
            if warp_idx == 4:
                cute.arch.cp_async_bulk_wait_group(0)

    @cute.kernel
    def ping_pong_kernel(
        self, tma_a: cute.CopyAtom, tA: cute.Tensor, tma_b: cute.CopyAtom, tB: cute.Tensor,
        tma_c: cute.CopyAtom, mC: cute.Tensor, tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout, c_layout: cute.ComposedLayout, m: Int32, n: Int32, k: Int32,
    ):  # fmt: skip
        tidx, _, _ = cute.arch.thread_idx()
        _, _, z = cute.arch.block_idx()
        _, _, grid_z = cute.arch.grid_dim()
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        group = warp_idx // 4 - 1
        mainloop, sA, sB, sC, turns = self.allocate(a_layout, b_layout, c_layout, WARPGROUP)
        order = pipeline.PipelineOrder.create(
            barrier_storage=turns,
            depth=2,  # a turn at the tensor cores, a turn at the epilogue
            length=CONSUMERS,
            group_id=group,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, WARPGROUP),
        )
        producer, _ = mainloop.make_participants()
        tiles_m, tiles_n = m // self.tile[0], n // self.tile[1]
        k_tiles = k // (self.tile[2] * self.splits)
        works = tiles_m * tiles_n * self.splits // (self.cluster[0] * self.cluster[1])
        if group < 0:
            if cutlass.const_expr(self.registers is not None):
                cute.arch.setmaxregister_decrease(self.registers[0])
            if warp_idx == 0:
                self.produce(producer, tma_a, tA, tma_b, tB, sA, sB, works, tiles_m, tiles_n, k_tiles)
        else:
            if cutlass.const_expr(self.registers is not None):
                cute.arch.setmaxregister_increase(self.registers[1])
            thread = tidx % WARPGROUP
            tCrA, tCrB, acc, total = self.fragments(tiled_mma, thread, sA, sB)
            turn = order.state.clone()
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
            state = self.skip(state, group * k_tiles)
            for work in cutlass.range(z + group * grid_z, works, CONSUMERS * grid_z, unroll=1):
                tile_m, tile_n, split = self.place(work, tiles_m, tiles_n)
                order.wait(turn)
                state, done = self.multiply(mainloop, state, tiled_mma, tCrA, tCrB, acc, total, k_tiles)
                turn = order.arrive(turn)  # the other may issue products while ours drain
                self.drain(mainloop, done)
                state = self.skip(state, k_tiles)
                order.wait(turn)
                self.write(
                    tma_c, mC, sC, tiled_mma, thread, acc, split * tiles_m + tile_m, tile_n, warp_idx % 4
                )
                if cutlass.const_expr(self.epilogue == "tma"):
                    if warp_idx % 4 == 0:  # the buffers go to the other warpgroup
                        cute.arch.cp_async_bulk_wait_group(0, read=True)
                    pipeline.NamedBarrier(barrier_id=1, num_threads=WARPGROUP).arrive_and_wait()
                turn = order.arrive(turn)
            if warp_idx % 4 == 0:
                cute.arch.cp_async_bulk_wait_group(0)
