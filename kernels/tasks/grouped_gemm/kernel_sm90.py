"""Grouped GEMM in CuTe-DSL for sm_90a: the persistent WGMMA GEMM, with a schedule made on the GPU.

The host does not know where groups end. Each CTA counts the tiles of every group when it starts; then
a warp finds the group of any tile with one look of its lanes at that table. A tile of c never spans
two groups: it reads rows of a beyond its group's end, and leaves out what it must not write.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.hopper_helpers as sm90
from cutlass import BFloat16, Float32, Int32, Int64, const_expr, cute, pipeline, range_constexpr
from cutlass.cute import nvgpu
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum

STATIC_AXES = ("groups",)
TILE_K = 64
"""One line of 128 bytes, the widest swizzle."""
WARP = 32
WARPGROUP = 128
STORE_BUFFERS = 2
VECTOR = 8
"""Elements of c in one store of 128 bits."""
ALIGNMENT_BYTES = 16
"""Of the matrices and of their rows, for TMA."""
SMEM_BYTES = 227 * 1024


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:
    """Compile for one number of groups and all other sizes; needs no GPU, obeys `CUTE_DSL_ARCH`.

    Returns:
        `launch(a, b, group_ends, c)` for contiguous CUDA tensors: bfloat16 of shapes [total_rows, K],
        [groups, N, K], int32 [groups], bfloat16 [total_rows, N]; matrices aligned to 16 bytes, N and K
        multiples of 8. It launches on torch's current stream and does not wait.
    """
    kernel = GroupedGemm(groups=axes["groups"], **knobs)
    matrix = cute.runtime.make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=ALIGNMENT_BYTES)
    ends = cute.runtime.make_ptr(Int32, 0, cute.AddressSpace.gmem, assumed_align=4)
    sizes = (Int32(1), Int32(8), Int32(8), Int32(1))
    compiled = cute.compile(kernel, matrix, matrix, ends, matrix, *sizes, cuda.CUstream(0))
    return Launch((compiled,))


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors."""

    compiled: tuple[Any, ...]

    def __call__(self, a: Any, b: Any, group_ends: Any, c: Any) -> None:
        import torch  # compiling must not need it

        (rows, n), k = c.shape, a.shape[1]
        matrices = (a.data_ptr(), b.data_ptr(), c.data_ptr())
        if any(value % ALIGNMENT_BYTES for value in (*matrices, 2 * n, 2 * k)):
            raise ValueError(f"a, b, c and their rows must be aligned to {ALIGNMENT_BYTES} bytes")
        if rows == 0:
            return
        if n == 0 or k == 0:
            raise ValueError(f"N and K must not be 0, but N={n}, K={k}")
        ctas = torch.cuda.get_device_properties(a.device).multi_processor_count
        # Packed by hand: calling the compiled function costs the host several times as much.
        values = (
            *map(ctypes.c_void_p, (a.data_ptr(), b.data_ptr(), group_ends.data_ptr(), c.data_ptr())),
            *map(ctypes.c_int32, (rows, n, k, ctas)),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        self.compiled[0].run_compiled_program([ctypes.addressof(value) for value in values])


@dataclass(frozen=True)
class GroupedGemm:
    """The kernel for one number of groups and one point of the search space."""

    groups: int
    tile_m: int
    tile_n: int
    stages: int
    ping_pong: bool

    def __post_init__(self) -> None:
        if self.tile_m % (64 * self.warpgroups):
            raise ValueError(f"tile_m must be a multiple of {64 * self.warpgroups}, not {self.tile_m}")
        if (registers := self.tile_m * self.tile_n // (self.warpgroups * WARPGROUP)) > 128:
            raise ValueError(f"the accumulator would take {registers} registers a thread; at most 128 fit")
        if self.smem_bytes > SMEM_BYTES:
            raise ValueError(f"{self.smem_bytes} bytes of shared memory; a CTA has {SMEM_BYTES}")

    @property
    def teams(self) -> int:
        """Groups of consumers with a tile of their own."""
        return 2 if self.ping_pong else 1

    @property
    def warpgroups(self) -> int:
        """Those that share a tile, 64 rows each at a time."""
        return 1 if self.ping_pong or self.tile_m == 64 else 2

    @property
    def threads(self) -> int:
        return (1 + self.teams * self.warpgroups) * WARPGROUP

    @property
    def slice_mn(self) -> tuple[int, int]:
        """What of a tile is written back at a time."""
        return 64 * self.warpgroups, min(64, self.tile_n)

    @property
    def table_rows(self) -> int:
        """Groups, up to a full warp, and a first row of zeros."""
        return -(-self.groups // WARP) * WARP + 1

    @property
    def smem_bytes(self) -> int:
        operands = self.stages * (self.tile_m + self.tile_n) * TILE_K
        buffers = self.teams * STORE_BUFFERS * math.prod(self.slice_mn)
        table = 2 * self.table_rows * Int32.width // 8
        barriers = 8 * (2 * self.stages + self.teams)
        return (operands + buffers) * BFloat16.width // 8 + table + barriers

    def layouts(self) -> tuple[cute.ComposedLayout, ...]:
        """Shared memory of a (tile_m, TILE_K, stages), b (tile_n, TILE_K, stages) and c (slice, buffers)."""
        tile, row_major = (self.tile_m, self.tile_n, TILE_K), LayoutEnum.ROW_MAJOR
        return (
            sm90.make_smem_layout_a(row_major, tile, BFloat16, self.stages),
            sm90.make_smem_layout_b(row_major, tile, BFloat16, self.stages),
            sm90.make_smem_layout_epi(BFloat16, row_major, self.slice_mn, self.teams * STORE_BUFFERS),
        )

    @cute.jit
    def __call__(
        self,
        a: cute.Pointer,
        b: cute.Pointer,
        group_ends: cute.Pointer,
        c: cute.Pointer,
        rows: Int32,
        n: Int32,
        k: Int32,
        ctas: Int32,
        stream: cuda.CUstream,
    ):
        n, k = cute.assume(n, divby=8), cute.assume(k, divby=8)
        mA = cute.make_tensor(a, cute.make_layout((rows, k), stride=(k, 1)))
        matrix = cute.assume(Int64(n) * k, divby=8)
        mB = cute.make_tensor(b, cute.make_layout((n, k, self.groups), stride=(k, 1, matrix)))
        mEnds = cute.make_tensor(group_ends, cute.make_layout(self.groups))
        # A 64-bit row stride: c is written without TMA and may hold more than 2^31 elements.
        row = cute.assume(Int64(n), divby=8)
        mC = cute.make_tensor(c, cute.make_layout((rows, n), stride=(row, 1)))

        sA, sB, _ = (cute.slice_(layout, (None, None, 0)) for layout in self.layouts())
        load = cpasync.CopyBulkTensorTileG2SOp()
        a_atom = cpasync.make_tiled_tma_atom(load, mA, sA, (self.tile_m, TILE_K))
        b_atom = cpasync.make_tiled_tma_atom(load, mB, sB, (self.tile_n, TILE_K))
        tiled_mma = sm90.make_trivial_tiled_mma(
            BFloat16, BFloat16, OperandMajorMode.K, OperandMajorMode.K, Float32,
            (self.warpgroups, 1, 1), (64, self.tile_n),
        )  # fmt: skip
        self.kernel(tuple(a_atom), tuple(b_atom), mEnds, mC, tiled_mma).launch(
            grid=[ctas, 1, 1],
            block=[self.threads, 1, 1],
            min_blocks_per_mp=1,
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        a: tuple[cute.CopyAtom, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor],
        mEnds: cute.Tensor,
        mC: cute.Tensor,
        tiled_mma: cute.TiledMma,
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        smem = SmemAllocator()
        sA, sB, sC = (
            smem.allocate_tensor(BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
            for layout in self.layouts()
        )
        sTable = smem.allocate_tensor(Int32, cute.make_layout((self.table_rows, 2)), byte_alignment=16)
        if warp_idx == 0:
            cpasync.prefetch_descriptor(a[0])
            cpasync.prefetch_descriptor(b[0])
            self.count(mEnds, sTable)

        team = warp_idx // 4 - 1 if self.ping_pong else Int32(0)
        turns = pipeline.PipelineOrder.create(
            barrier_storage=smem.allocate_array(Int64, self.teams),
            depth=1,
            length=self.teams,
            group_id=team,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, WARPGROUP),
            defer_sync=True,  # the ring's sync serves all
        )
        ring = pipeline.PipelineTmaAsync.create(
            barrier_storage=smem.allocate_array(Int64, 2 * self.stages),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(
                pipeline.Agent.Thread, self.warpgroups * WARPGROUP // WARP
            ),
            tx_count=(self.tile_m + self.tile_n) * TILE_K * BFloat16.width // 8,
            cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
        )

        columns = cute.ceil_div(mC.shape[1], self.tile_n)
        k_tiles = cute.ceil_div(a[1].shape[1], TILE_K)
        if warp_idx < 4:
            if const_expr(self.threads > 2 * WARPGROUP):
                cute.arch.setmaxregister_decrease(40)
            if warp_idx == 0:
                self.load(ring, (*a, sA), (*b, sB), sTable, k_tiles, columns)
        else:
            if const_expr(self.threads > 2 * WARPGROUP):
                cute.arch.setmaxregister_increase(232)
            self.multiply(ring, turns, team, tiled_mma, (sA, sB, sC), mC, sTable, k_tiles, columns)

    @cute.jit
    def count(self, mEnds: cute.Tensor, sTable: cute.Tensor):
        """Fill the table, one warp: row g holds the rows of tiles before group g, and its first row of a."""
        lane = cute.arch.lane_idx()
        if lane == 0:
            sTable[0, 0] = Int32(0)
            sTable[0, 1] = Int32(0)
        before = Int32(0)
        for group in range_constexpr(0, self.groups, WARP):
            # Lanes beyond the last group see it as one more, which is empty.
            this = cutlass.min(group + lane, self.groups)
            first = Int32(0)
            if this > 0:
                first = mEnds[this - 1]
            last = mEnds[cutlass.min(this, self.groups - 1)]
            tiles = cute.ceil_div(last - first, self.tile_m)
            for step in (1, 2, 4, 8, 16):
                lower = cute.arch.shuffle_sync_up(tiles, step)
                if lane >= step:
                    tiles += lower
            sTable[group + lane + 1, 0] = before + tiles
            sTable[group + lane + 1, 1] = last
            before += cute.arch.shuffle_sync(tiles, WARP - 1)

    @cute.jit
    def find(self, index: Int32, sTable: cute.Tensor, columns: Int32) -> tuple[Int32, Int32, Int32, Int32]:
        """Tile `index`: its group, its column, its first row of a, and the row where its group ends.

        The tiles of a group are walked down each column: they share the rows of b. All lanes of a warp
        must call it.
        """
        lane = cute.arch.lane_idx()
        group = Int32(0)
        for chunk in range_constexpr(0, self.table_rows - 1, WARP):
            group += cute.arch.popc(
                cute.arch.vote_ballot_sync(sTable[chunk + lane + 1, 0] * columns <= index)
            )
        before = sTable[group, 0]
        height, within = sTable[group + 1, 0] - before, index - before * columns
        first = sTable[group, 1] + within % height * self.tile_m
        return group, within // height, first, sTable[group + 1, 1]

    @cute.jit
    def load(
        self,
        ring: pipeline.PipelineTmaAsync,
        a: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        sTable: cute.Tensor,
        k_tiles: Int32,
        columns: Int32,
    ):
        """The producer: every tile of this CTA, K tile by K tile, into the ring."""
        (load_a, tA, sA), (load_b, tB, sB) = a, b
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        one = cute.make_layout(1)
        gB = cute.local_tile(tB, (self.tile_n, TILE_K), (None, None, None))
        tBsB, tBgB = cpasync.tma_partition(
            load_b, 0, one, cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2)
        )
        free = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
        tiles = sTable[self.groups, 0] * columns
        for index in cutlass.range(cta, tiles, ctas, unroll=1):
            group, column, first, _ = self.find(index, sTable, columns)
            gA = cute.local_tile(cute.domain_offset((first, 0), tA), (self.tile_m, TILE_K), (0, None))
            tAsA, tAgA = cpasync.tma_partition(
                load_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2)
            )
            for k_tile in cutlass.range(k_tiles, unroll=1):
                ring.producer_acquire(free)
                full = ring.producer_get_barrier(free)
                cute.copy(load_a, tAgA[None, k_tile], tAsA[None, free.index], tma_bar_ptr=full)
                cute.copy(load_b, tBgB[None, column, k_tile, group], tBsB[None, free.index], tma_bar_ptr=full)
                free.advance()
        ring.producer_tail(free)

    @cute.jit
    def multiply(
        self,
        ring: pipeline.PipelineTmaAsync,
        turns: pipeline.PipelineOrder,
        team: Int32,
        tiled_mma: cute.TiledMma,
        smem: tuple[cute.Tensor, cute.Tensor, cute.Tensor],
        mC: cute.Tensor,
        sTable: cute.Tensor,
        k_tiles: Int32,
        columns: Int32,
    ):
        """A team of consumers: its tiles one after the other, each multiplied and then written back."""
        sA, sB, sC = smem
        tidx, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        tidx = tidx % (self.warpgroups * WARPGROUP) if self.ping_pong else tidx - WARPGROUP
        # The same for a whole warpgroup: descriptors live in uniform registers.
        thr_mma = tiled_mma.get_slice(cute.arch.make_warp_uniform(tidx // WARPGROUP) * WARPGROUP)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((self.tile_m, self.tile_n)), Float32)

        full = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
        turn = turns.state.clone()
        if const_expr(self.ping_pong):
            full.advance(team * k_tiles)
        tiles = sTable[self.groups, 0] * columns
        for index in cutlass.range(cta + team * ctas, tiles, self.teams * ctas, unroll=1):
            read = full.clone()
            if const_expr(self.ping_pong):
                turns.wait(turn)
            # The first products stand before the loop: in it, their overwriting would serialise all.
            ring.consumer_wait(full)
            self.issue(tiled_mma, acc, tCrA, tCrB, full.index, accumulate=False)
            full.advance()
            for _ in cutlass.range(1, k_tiles, unroll=1):
                ring.consumer_wait(full)
                self.issue(tiled_mma, acc, tCrA, tCrB, full.index, accumulate=True)
                full.advance()
                warpgroup.wait_group(1)
                ring.consumer_release(read)
                read.advance()
            if const_expr(self.ping_pong):
                turn = turns.arrive(turn)
                full.advance(k_tiles)  # those of the other team
            _, column, first, last = self.find(index, sTable, columns)
            warpgroup.wait_group(0)
            ring.consumer_release(read)
            self.write_back(tiled_mma, acc, sC, mC, tidx, team, (first, column, last))

    @cute.jit
    def issue(
        self,
        tiled_mma: cute.TiledMma,
        acc: cute.Tensor,
        tCrA: cute.Tensor,
        tCrB: cute.Tensor,
        stage: Int32,
        accumulate: cutlass.Constexpr,
    ):
        """The products of one stage, as a group of WGMMAs that this warpgroup does not wait for."""
        tiled_mma.set(warpgroup.Field.ACCUMULATE, accumulate)
        warpgroup.fence()
        for k_block in range_constexpr(cute.size(tCrA, mode=[2])):
            at = (None, None, k_block, stage)
            cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
            tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.commit_group()

    @cute.jit
    def write_back(
        self,
        tiled_mma: cute.TiledMma,
        acc: cute.Tensor,
        sC: cute.Tensor,
        mC: cute.Tensor,
        tidx: Int32,
        team: Int32,
        at: tuple[Int32, Int32, Int32],
    ):
        """A tile through shared memory to those rows of c that are its group's, 128 bits a store."""
        first, column, last = at
        to_smem = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), BFloat16)
        tiled_store = cute.make_tiled_copy_S(to_smem, cute.make_tiled_copy_C_atom(to_smem, tiled_mma))
        thr_store = tiled_store.get_slice(tidx)
        tSsC = thr_store.partition_D(sC)
        tSrC = cute.make_rmem_tensor(cute.shape(thr_store.partition_S(sC))[:3], BFloat16)

        across, threads = self.slice_mn[1] // VECTOR, self.warpgroups * WARPGROUP
        copy = cute.make_copy_atom(nvgpu.CopyUniversalOp(), BFloat16, num_bits_per_copy=128)
        tiled_copy = cute.make_tiled_copy_tv(
            copy,
            cute.make_ordered_layout((threads // across, across), order=(1, 0)),
            cute.make_layout((1, VECTOR)),
        )
        thr_copy = tiled_copy.get_slice(tidx)
        gC = cute.domain_offset((first, column * self.tile_n), mC)
        cC = cute.domain_offset((first, column * self.tile_n), cute.make_identity_tensor(mC.shape))
        slices_m, slices_n = self.tile_m // self.slice_mn[0], self.tile_n // self.slice_mn[1]
        for part in range_constexpr(slices_m * slices_n):
            buffer = team * STORE_BUFFERS + part % STORE_BUFFERS
            if const_expr(part == 0 and slices_m * slices_n % STORE_BUFFERS):
                self.meet(team)  # the tile before ended in this buffer
            for value in range_constexpr(cute.size(tSrC)):
                tSrC[value] = acc[part * cute.size(tSrC) + value].to(BFloat16)
            cute.copy(tiled_store, tSrC, tSsC[None, None, None, buffer])
            self.meet(team)  # this slice is complete, and the one before has been read
            where = (part // slices_n, part % slices_n)
            tXsC = thr_copy.partition_S(sC[None, None, buffer])
            tXgC = thr_copy.partition_D(cute.local_tile(gC, self.slice_mn, where))
            tXcC = thr_copy.partition_D(cute.local_tile(cC, self.slice_mn, where))
            for step in range_constexpr(cute.size(tXsC, mode=[1])):
                tXrC = cute.make_fragment_like(tXsC[None, step, 0])
                cute.copy(copy, tXsC[None, step, 0], tXrC)
                if cute.elem_less(tXcC[0, step, 0], (last, mC.shape[1])):
                    cute.copy(copy, tXrC, tXgC[None, step, 0])

    @cute.jit
    def meet(self, team: Int32):
        """A barrier of one team; number 0 is the whole CTA's."""
        cute.arch.barrier(barrier_id=1 + team, number_of_threads=self.warpgroups * WARPGROUP)
