"""What the warps of a Hopper GEMM do: load tiles of A and B, multiply them, write tiles of C.

The choices that experiments compare stand here; `hopper_gemm` puts the roles together.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
from cutlass import BFloat16, Float32, Int32, cute, pipeline
from cutlass.cute.nvgpu import cpasync, warp, warpgroup

CONSUMERS, WARPGROUP, EPILOGUE_STAGES = 2, 128, 2


@dataclass(frozen=True)
class Roles:
    """The choices. `tile` is that of a CTA, in ping-pong that of a warpgroup."""

    tile: tuple[int, int, int] = (128, 256, 64)
    stages: int = 4
    cluster: tuple[int, int] = (1, 1)
    ping_pong: bool = False
    registers: tuple[int, int] | None = (40, 232)
    """Registers of a loading and of a multiplying thread, or None to leave them as launched."""
    group_m: int = 1
    """Tiles along M that are walked before the next ones along N; at least those of a cluster."""
    splits: int = 1
    """Parts of K, each written to a Float32 matrix of its own."""
    epilogue: str = "tma"
    """How C is written: tma (through shared memory), direct (from registers), partial (Float32, direct)."""
    dtype: type = BFloat16
    promote: int = 0
    """Tiles of K after which the sums move to a second accumulator, or 0 for never."""
    in_flight: int = 1
    """Tiles of K whose products may be unfinished when the next tile is waited for."""

    def __post_init__(self) -> None:
        slice_m, slice_n = self.slice_mn
        if self.tile[0] % slice_m or self.tile[1] % (EPILOGUE_STAGES * slice_n):
            raise ValueError(f"a tile of C must be a multiple of {slice_m} x {EPILOGUE_STAGES * slice_n}")

    @property
    def slice_mn(self) -> tuple[int, int]:
        """What of C is written through shared memory at a time: 64 rows of each warpgroup of a tile."""
        return 64 * (1 if self.ping_pong else CONSUMERS), 32

    @cute.jit
    def place(self, work: Int32, tiles_m: Int32, tiles_n: Int32):
        """Tile along M and N of this CTA in the cluster's `work`, and the part of K."""
        clusters_m, clusters_n = tiles_m // self.cluster[0], tiles_n // self.cluster[1]
        x, y, _ = cute.arch.block_in_cluster_idx()
        split, rest = work // (clusters_m * clusters_n), work % (clusters_m * clusters_n)
        group_rows = max(1, self.group_m // self.cluster[0])
        first_row, within = rest // (group_rows * clusters_n) * group_rows, rest % (group_rows * clusters_n)
        height = cutlass.min(group_rows, clusters_m - first_row)
        cluster_m, cluster_n = first_row + within % height, within // height
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
            tSrC = cute.make_rmem_tensor(cute.shape(thr_store.partition_S(sC))[:3], BFloat16)
            slice_size = cute.size(tSrC)
            gC_slices = cute.zipped_divide(gC, self.slice_mn)
            bSsC, bSgC = cpasync.tma_partition(
                tma_c, 0, cute.make_layout(1), cute.group_modes(sC, 0, 2), gC_slices
            )
            stores = pipeline.PipelineTmaStore.create(
                num_stages=EPILOGUE_STAGES,
                producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, threads),
            )
            consumers = pipeline.NamedBarrier(barrier_id=1, num_threads=threads)
            # The accumulator holds the slices one after the other, those side by side first.
            across = self.tile[1] // self.slice_mn[1]
            for i in cutlass.range_constexpr(cute.size(acc) // slice_size):
                for v in cutlass.range_constexpr(slice_size):
                    tSrC[v] = acc[i * slice_size + v].to(BFloat16)
                buffer = i % EPILOGUE_STAGES
                cute.copy(to_smem, tSrC, tSsC[None, None, None, buffer])
                cute.arch.fence_proxy("async.shared", space="cta")
                consumers.arrive_and_wait()
                if first_warp == 0:
                    cute.copy(tma_c, bSsC[None, buffer], bSgC[None, (i // across, i % across)])
                    stores.producer_commit()
                    stores.producer_acquire()
                consumers.arrive_and_wait()
        else:
            tCgC = tiled_mma.get_slice(thread).partition_C(gC)
            tCrC = cute.make_rmem_tensor_like(acc, mC.element_type)
            tCrC.store(acc.load().to(mC.element_type))
            cute.autovec_copy(tCrC, tCgC)

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
