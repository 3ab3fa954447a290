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
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.tensor_utils import LayoutEnum

CONSUMERS, WARPGROUP, EPILOGUE_N, EPILOGUE_STAGES = 2, 128, 32, 2
ROW = LayoutEnum.ROW_MAJOR


@dataclass(frozen=True)
class Gemm:
    """The choices. `tile` is that of a CTA, in ping-pong that of a warpgroup."""

    tile: tuple[int, int, int] = (128, 256, 64)
    stages: int = 4
    cluster: tuple[int, int] = (1, 1)
    ping_pong: bool = False
    registers: tuple[int, int] | None = (40, 232)
    """Registers of a loading and of a multiplying thread, or None to leave them as launched."""
    group_m: int = 1
    """Tiles along M that are walked before the next ones along N."""
    splits: int = 1
    """Parts of K, each written to a Float32 matrix of its own."""
    epilogue: str = "tma"
    """How C is written: tma (through shared memory), direct (from registers), partial (Float32, direct)."""
    dtype: type = BFloat16
    promote: int = 0
    """Tiles of K after which the sums move to a second accumulator, or 0 for never."""
    in_flight: int = 1
    """Tiles of K whose products may be unfinished when the next tile is waited for."""

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
        c_layout = sm90.make_smem_layout_epi(BFloat16, ROW, (tile_m, EPILOGUE_N), EPILOGUE_STAGES)
        stage = (None, None, 0)
        # CTAs along N share A, those along M share B.
        tma_a, tA = self.load(mA, cute.slice_(a_layout, stage), (tile_m, tile_k), self.cluster[1])
        tma_b, tB = self.load(mB, cute.slice_(b_layout, stage), (tile_n, tile_k), self.cluster[0])
        tma_c, tC = tma_a, mC
        if cutlass.const_expr(self.epilogue == "tma"):
            tma_c, tC = cpasync.make_tiled_tma_atom(
                cpasync.CopyBulkTensorTileS2GOp(), mC, cute.slice_(c_layout, stage), (tile_m, EPILOGUE_N)
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

    @cute.jit
    def place(self, work: Int32, tiles_m: Int32, tiles_n: Int32):
        """Tile along M and N of this CTA in the cluster's `work`, and the part of K."""
        clusters_m, clusters_n = tiles_m // self.cluster[0], tiles_n // self.cluster[1]
        x, y, _ = cute.arch.block_in_cluster_idx()
        split = work // (clusters_m * clusters_n)
        rest = work % (clusters_m * clusters_n)
        band = self.group_m * clusters_n
        cluster_m = rest // band * self.group_m + rest % band % self.group_m
        cluster_n = rest % band // self.group_m
        return cluster_m * self.cluster[0] + x, cluster_n * self.cluster[1] + y, split

    @cute.jit
    def produce(
        self,
        producer,
        tma_a,
        tA,
        tma_b,
        tB,
        sA,
        sB,
        works: Int32,
        tiles_m: Int32,
        tiles_n: Int32,
        k_tiles: Int32,
    ):
        """The loading warp: all tiles of K of all work of this CTA."""
        x, y, _ = cute.arch.block_in_cluster_idx()
        _, _, z = cute.arch.block_idx()
        _, _, grid_z = cute.arch.grid_dim()
        vmnk = cute.make_layout((1, *self.cluster, 1))
        gA = cute.local_tile(tA, (self.tile[0], self.tile[2]), (None, None))
        gB = cute.local_tile(tB, (self.tile[1], self.tile[2]), (None, None))
        tAsA, tAgA = cpasync.tma_partition(
            tma_a,
            y,
            cute.make_layout(self.cluster[1]),
            cute.group_modes(sA, 0, 2),
            cute.group_modes(gA, 0, 2),
        )
        tBsB, tBgB = cpasync.tma_partition(
            tma_b,
            x,
            cute.make_layout(self.cluster[0]),
            cute.group_modes(sB, 0, 2),
            cute.group_modes(gB, 0, 2),
        )
        a_mask, b_mask = {}, {}
        if cutlass.const_expr(self.cluster[1] > 1):
            a_mask = {"mcast_mask": cpasync.create_tma_multicast_mask(vmnk, (0, x, y, 0), mcast_mode=2)}
        if cutlass.const_expr(self.cluster[0] > 1):
            b_mask = {"mcast_mask": cpasync.create_tma_multicast_mask(vmnk, (0, x, y, 0), mcast_mode=1)}
        for work in cutlass.range(z, works, grid_z, unroll=1):
            tile_m, tile_n, split = self.place(work, tiles_m, tiles_n)
            for i in cutlass.range(k_tiles, unroll=1):
                slot = producer.acquire_and_advance()
                k_tile = split * k_tiles + i
                cute.copy(
                    tma_a,
                    tAgA[None, tile_m, k_tile],
                    tAsA[None, slot.index],
                    tma_bar_ptr=slot.barrier,
                    **a_mask,
                )
                cute.copy(
                    tma_b,
                    tBgB[None, tile_n, k_tile],
                    tBsB[None, slot.index],
                    tma_bar_ptr=slot.barrier,
                    **b_mask,
                )
        producer.tail()

    @cute.jit
    def multiply(self, mainloop, state, tiled_mma, tCrA, tCrB, acc, total, k_tiles: Int32):
        """Issue all tiles of K of one piece of work; `drain` waits for the last ones."""
        done = state.clone()
        if cutlass.const_expr(self.promote > 0):
            total.fill(0.0)
        for i in cutlass.range(k_tiles, unroll=1):
            if cutlass.const_expr(self.promote > 0):
                tiled_mma.set(warpgroup.Field.ACCUMULATE, i % self.promote != 0)
            else:
                tiled_mma.set(warpgroup.Field.ACCUMULATE, i != 0)
            mainloop.consumer_wait(state)
            warpgroup.fence()
            for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
                at = (None, None, k_block, state.index)
                cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
                tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
            warpgroup.commit_group()
            state.advance()
            if cutlass.const_expr(self.promote > 0):
                warpgroup.wait_group(0)
                mainloop.consumer_release(done)
                done.advance()
                if i % self.promote == self.promote - 1:
                    total.store(total.load() + acc.load())
            else:
                warpgroup.wait_group(self.in_flight)
                if i >= self.in_flight:
                    mainloop.consumer_release(done)
                    done.advance()
        return state, done

    @cute.jit
    def drain(self, mainloop, done):
        """Wait for the products still in flight and give their stages back."""
        warpgroup.wait_group(0)
        if cutlass.const_expr(self.promote == 0):
            for _ in cutlass.range_constexpr(self.in_flight):
                mainloop.consumer_release(done)
                done.advance()

    @cute.jit
    def write(
        self, tma_c, mC, sC, tiled_mma, thread: Int32, acc, tile_m: Int32, tile_n: Int32, first_warp: Int32
    ):
        """The tile in the accumulator, to C."""
        gC = cute.local_tile(mC, self.tile[:2], (tile_m, tile_n))
        threads = WARPGROUP if self.ping_pong else WARPGROUP * CONSUMERS
        if cutlass.const_expr(self.epilogue == "tma"):
            store = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), BFloat16)
            to_smem = cute.make_tiled_copy_S(store, cute.make_tiled_copy_C_atom(store, tiled_mma))
            thr_store = to_smem.get_slice(thread)
            tSsC = thr_store.partition_D(sC)
            tSrAcc = to_smem.retile(acc)
            tSrC = cute.make_rmem_tensor(cute.shape(thr_store.partition_S(sC))[:3], BFloat16)
            slice_size = cute.size(tSrC)
            gC_slices = cute.zipped_divide(gC, (self.tile[0], EPILOGUE_N))
            bSsC, bSgC = cpasync.tma_partition(
                tma_c, 0, cute.make_layout(1), cute.group_modes(sC, 0, 2), gC_slices
            )
            stores = pipeline.PipelineTmaStore.create(
                num_stages=EPILOGUE_STAGES,
                producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, threads),
            )
            consumers = pipeline.NamedBarrier(barrier_id=1, num_threads=threads)
            for i in cutlass.range_constexpr(self.tile[1] // EPILOGUE_N):
                for v in cutlass.range_constexpr(slice_size):
                    tSrC[v] = tSrAcc[i * slice_size + v].to(BFloat16)
                buffer = i % EPILOGUE_STAGES
                cute.copy(to_smem, tSrC, tSsC[None, None, None, buffer])
                cute.arch.fence_proxy("async.shared", space="cta")
                consumers.arrive_and_wait()
                if first_warp == 0:
                    cute.copy(tma_c, bSsC[None, buffer], bSgC[None, (0, i)])
                    stores.producer_commit()
                    stores.producer_acquire()
                consumers.arrive_and_wait()
        else:
            tCgC = tiled_mma.get_slice(thread).partition_C(gC)
            tCrC = cute.make_rmem_tensor_like(acc, mC.element_type)
            tCrC.store(acc.load().to(mC.element_type))
            cute.autovec_copy(tCrC, tCgC)

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

    @cute.jit
    def skip(self, state: pipeline.PipelineState, tiles: Int32) -> pipeline.PipelineState:
        """The state after the stages that the other warpgroup reads."""
        ahead = state.index + tiles
        return pipeline.PipelineState(
            self.stages, state.count + tiles, ahead % self.stages, state.phase ^ ((ahead // self.stages) & 1)
        )

    def allocate(self, a_layout, b_layout, c_layout, readers):
        """The ring, the buffers of the epilogue and all barriers; `readers` threads release a stage."""
        smem = cutlass.memory.SmemAllocator()
        barriers = smem.allocate_array(cutlass.Int64, 2 * self.stages)
        turns = smem.allocate_array(cutlass.Int64, 2 * CONSUMERS)
        sA = smem.allocate_tensor(self.dtype, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
        sB = smem.allocate_tensor(self.dtype, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
        sC = sA
        if self.epilogue == "tma":
            sC = smem.allocate_tensor(BFloat16, c_layout.outer, byte_alignment=1024, swizzle=c_layout.inner)
        mainloop = pipeline.PipelineTmaAsync.create(
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, readers),
            tx_count=(self.tile[0] + self.tile[1]) * self.tile[2] * self.dtype.width // 8,
            barrier_storage=barriers,
            cta_layout_vmnk=cute.make_layout((1, *self.cluster, 1)),
            enable_multicast_signaling=True,
        )
        return mainloop, sA, sB, sC, turns

    def fragments(self, tiled_mma, thread, sA, sB):
        """Descriptors of A and B, and one or two accumulators."""
        thr_mma = tiled_mma.get_slice(thread)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        shape = tiled_mma.partition_shape_C(self.tile[:2])
        acc = cute.make_rmem_tensor(shape, Float32)
        total = cute.make_rmem_tensor(shape, Float32) if self.promote else acc
        return tCrA, tCrB, acc, total
