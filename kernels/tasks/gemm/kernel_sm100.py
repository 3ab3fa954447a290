"""GEMM in CuTe-DSL for sm_100a: persistent, warp-specialised, tcgen05 fed by TMA.

One warp keeps a ring of shared memory full, one issues the products, four write back. Tensor memory
holds two accumulators, so that a tile is written back while the next one is multiplied. A tile of 256
rows belongs to a pair of CTAs, whose products one of them issues. Tiles walk as on sm_90a, and a
cluster loads once what its CTAs share. Compiled and inspected, not yet run.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.blackwell_helpers as sm100
from cutlass import BFloat16, Float32, Int32, const_expr, cute, pipeline, range_constexpr
from cutlass.cute.nvgpu import (
    OperandMajorMode,
    cpasync,
    make_tiled_tma_atom_A,
    make_tiled_tma_atom_B,
    tcgen05,
)
from cutlass.memory import SmemAllocator, TmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import HardwareInfo

STATIC_AXES = ()
ROWS = 128
"""Of c for a CTA: the lanes of tensor memory."""
TILE_K = 64
"""One line of 128 bytes, the widest swizzle."""
STORE_WARPS, LOAD_WARP, MULTIPLY_WARP = 4, 4, 5
"""Warp i of the first four reaches the i-th quarter of tensor memory's lanes."""
THREADS = 6 * 32
ACCUMULATORS = 2
STORE_BUFFERS = 2
ALIGNMENT_BYTES = 16
"""Of the matrices and of their rows, for TMA."""
SMEM_BYTES = 227 * 1024


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:  # noqa: ARG001
    """Compile for all sizes; needs no GPU, obeys `CUTE_DSL_ARCH`.

    Returns:
        `launch(a, b, c)` for contiguous bfloat16 CUDA tensors of shapes [M, K], [N, K], [M, N], each
        aligned to 16 bytes, N and K multiples of 8. It launches on torch's current stream and does
        not wait.
    """
    kernel = Gemm(**knobs)
    matrix = cute.runtime.make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=ALIGNMENT_BYTES)
    sizes = (Int32(1), Int32(8), Int32(8), Int32(1))
    compiled = cute.compile(kernel, matrix, matrix, matrix, *sizes, cuda.CUstream(0))
    return Launch((compiled,), kernel.cluster_m * kernel.cluster_n)


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors."""

    compiled: tuple[Any, ...]
    cluster_ctas: int

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        import torch  # compiling must not need it

        (m, n), k = c.shape, a.shape[1]
        pointers = (a.data_ptr(), b.data_ptr(), c.data_ptr())
        if any(value % ALIGNMENT_BYTES for value in (*pointers, 2 * n, 2 * k)):
            raise ValueError(f"a, b, c and their rows must be aligned to {ALIGNMENT_BYTES} bytes")
        if m == 0 or n == 0 or k == 0:
            raise ValueError(f"no axis may be empty, but M={m}, N={n}, K={k}")
        if self.cluster_ctas > 2:
            clusters = resident_clusters(a.get_device(), self.cluster_ctas)
        else:
            clusters = torch.cuda.get_device_properties(a.device).multi_processor_count // self.cluster_ctas
        # Packed by hand: calling the compiled function costs the host several times as much.
        values = (
            *map(ctypes.c_void_p, pointers),
            *map(ctypes.c_int32, (m, n, k, clusters)),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        self.compiled[0].run_compiled_program([ctypes.addressof(value) for value in values])


@functools.cache
def resident_clusters(device: int, ctas: int) -> int:
    """How many clusters of so many CTAs a GPU holds at once; those of four may leave some SMs out."""
    return HardwareInfo(device).get_max_active_clusters(ctas)


@dataclass(frozen=True)
class Gemm:
    """The kernel for one point of the search space that it shares with sm_90a."""

    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int
    cluster_n: int
    ping_pong: bool
    group_m: int
    split_k: int

    def __post_init__(self) -> None:
        if self.tile_m not in (ROWS, 2 * ROWS):
            raise ValueError(f"tile_m must be 128, or 256 for a pair of CTAs, not {self.tile_m}")
        if self.cluster_m % self.pair:
            raise ValueError(
                f"tile_m=256 needs pairs along M, so cluster_m must be even, not {self.cluster_m}"
            )
        if math.prod(self.cluster) > 16:
            raise ValueError(f"a cluster of {math.prod(self.cluster)} CTAs; at most 16 are possible")
        if self.ping_pong:
            raise ValueError(
                "ping_pong is for sm_90a: here a tile is always written back beside the next one"
            )
        if self.split_k > 1:
            raise ValueError(f"split_k must be 1 on sm_100a, not {self.split_k}")
        if self.group_m % self.cluster_m:
            raise ValueError(f"group_m must be a multiple of cluster_m={self.cluster_m}, not {self.group_m}")
        if self.smem_bytes > SMEM_BYTES:
            raise ValueError(f"{self.smem_bytes} bytes of shared memory; a CTA has {SMEM_BYTES}")

    @property
    def pair(self) -> int:
        """CTAs that share a tile."""
        return self.tile_m // ROWS

    @property
    def group(self) -> tcgen05.CtaGroup:
        return tcgen05.CtaGroup.TWO if self.pair == 2 else tcgen05.CtaGroup.ONE

    @property
    def tile(self) -> tuple[int, int, int]:
        return self.tile_m, self.tile_n, TILE_K

    @property
    def cluster(self) -> tuple[int, int, int]:
        return self.cluster_m, self.cluster_n, 1

    @property
    def cluster_vmnk(self) -> tuple[int, int, int, int]:
        """The cluster in tiles: CTAs of a pair come first."""
        return self.pair, self.cluster_m // self.pair, self.cluster_n, 1

    @property
    def slice_mn(self) -> tuple[int, int]:
        """What of a tile is written back at a time: a load from tensor memory has 2^i columns."""
        return ROWS, math.gcd(64, self.tile_n)

    @property
    def stage_bytes(self) -> int:
        """Of one CTA, which loads its share of a and of b."""
        return (self.tile_m + self.tile_n) // self.pair * TILE_K * BFloat16.width // 8

    @property
    def smem_bytes(self) -> int:
        """The operands and the slices; barriers and the address of tensor memory take up to 1 KiB."""
        slices = STORE_BUFFERS * math.prod(self.slice_mn) * BFloat16.width // 8
        return self.stages * self.stage_bytes + slices + 1024

    @cute.jit
    def __call__(
        self,
        a: cute.Pointer,
        b: cute.Pointer,
        c: cute.Pointer,
        m: Int32,
        n: Int32,
        k: Int32,
        clusters: Int32,
        stream: cuda.CUstream,
    ):
        n, k = cute.assume(n, divby=8), cute.assume(k, divby=8)
        mA = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))
        mB = cute.make_tensor(b, cute.make_layout((n, k), stride=(k, 1)))
        mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))

        tiled_mma = sm100.make_trivial_tiled_mma(
            BFloat16, BFloat16, OperandMajorMode.K, OperandMajorMode.K, Float32,
            self.group, self.tile[:2],
        )  # fmt: skip
        sA, sB, sC = (
            cute.select(layout, mode=[*range(cute.rank(layout) - 1)]) for layout in self.layouts(tiled_mma)
        )
        one = cpasync.CopyBulkTensorTileG2SOp(self.group)
        many = cpasync.CopyBulkTensorTileG2SMulticastOp(self.group)
        share_a, share_b = (many if ctas > 1 else one for ctas in self.cluster_vmnk[2:0:-1])
        a_atom = make_tiled_tma_atom_A(share_a, mA, sA, self.tile, tiled_mma, self.cluster_vmnk)
        b_atom = make_tiled_tma_atom_B(share_b, mB, sB, self.tile, tiled_mma, self.cluster_vmnk)
        c_atom = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileS2GOp(), mC, sC, self.slice_mn)

        # In units of clusters; what sticks out of c is neither read nor written by TMA.
        rows = cute.ceil_div(m, ROWS * self.cluster_m)
        columns = cute.ceil_div(n, self.tile_n * self.cluster_n)
        self.kernel(tuple(a_atom), tuple(b_atom), tuple(c_atom), tiled_mma, (rows, columns)).launch(
            grid=[self.cluster_m, self.cluster_n, cutlass.min(clusters, rows * columns)],
            cluster=self.cluster,
            block=[THREADS, 1, 1],
            min_blocks_per_mp=1,
            stream=stream,
        )

    def layouts(self, tiled_mma: cute.TiledMma) -> tuple[cute.ComposedLayout, ...]:
        """Shared memory of a and b (MMA, M or N, K, stages) and c (slice, buffers)."""
        return (
            sm100.make_smem_layout_a(tiled_mma, self.tile, BFloat16, self.stages),
            sm100.make_smem_layout_b(tiled_mma, self.tile, BFloat16, self.stages),
            sm100.make_smem_layout_epi(BFloat16, LayoutEnum.ROW_MAJOR, self.slice_mn, STORE_BUFFERS),
        )

    @cute.kernel
    def kernel(
        self,
        a: tuple[cute.CopyAtom, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor],
        c: tuple[cute.CopyAtom, cute.Tensor],
        tiled_mma: cute.TiledMma,
        grid: tuple[Int32, Int32],
    ):
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == LOAD_WARP:
            for atom, _ in (a, b, c):
                cpasync.prefetch_descriptor(atom)

        smem = SmemAllocator()
        sA, sB, sC = (
            smem.allocate_tensor(BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
            for layout in self.layouts(tiled_mma)
        )
        _, tiles_m, tiles_n, _ = self.cluster_vmnk
        ctas = cute.make_layout(self.cluster_vmnk)
        thread = pipeline.CooperativeGroup(pipeline.Agent.Thread)
        sums = pipeline.PipelineUmmaAsync.create(
            num_stages=ACCUMULATORS,
            producer_group=thread,
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.pair * 32 * STORE_WARPS),
            cta_layout_vmnk=ctas,
            defer_sync=True,  # the ring's sync serves both
        )
        ring = pipeline.PipelineTmaUmma.create(
            num_stages=self.stages,
            producer_group=thread,
            # A stage is free when the products of all tiles that it was loaded for are done.
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, tiles_m + tiles_n - 1),
            tx_count=self.pair * self.stage_bytes,
            cta_layout_vmnk=ctas,
        )
        tmem = TmemAllocator(
            barrier_for_retrieve=pipeline.NamedBarrier(1, THREADS), is_two_cta=self.pair == 2
        )
        columns = max(32, 1 << (ACCUMULATORS * self.tile_n - 1).bit_length())  # a power of two, at least 32
        tmem.allocate(columns)
        tmem.wait_for_alloc()
        shape = cute.append(tiled_mma.partition_shape_C(self.tile[:2]), ACCUMULATORS)
        layout = tiled_mma.make_fragment_C(shape).layout  # ((tile_m, tile_n), 1, 1, ACCUMULATORS)
        tCtC = cute.make_tensor(tmem.retrieve_ptr(Float32), layout)

        k_tiles = cute.ceil_div(a[1].shape[1], TILE_K)
        if warp == LOAD_WARP:
            self.load(ring, (*a, sA), (*b, sB), tiled_mma, k_tiles, grid)
        elif warp == MULTIPLY_WARP:
            cta_m, _, _ = cute.arch.block_idx()
            if cta_m % self.pair == 0:  # one of a pair issues for both
                self.multiply(ring, sums, tiled_mma, sA, sB, tCtC, k_tiles, grid)
        else:
            self.write_back(sums, tCtC, (*c, sC), grid)
        cute.arch.sync_threads()
        tmem.relinquish_alloc_permit()
        tmem.free(tCtC.iterator)

    @cute.jit
    def load(
        self,
        ring: pipeline.PipelineTmaUmma,
        a: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        tiled_mma: cute.TiledMma,
        k_tiles: Int32,
        grid: tuple[Int32, Int32],
    ):
        """The producer: every tile of this CTA, K tile by K tile, into the ring."""
        (load_a, tA, sA), (load_b, tB, sB) = a, b
        cta_m, cta_n, cluster = cute.arch.block_idx()
        _, _, clusters = cute.arch.grid_dim()
        half, tile_m = cta_m % self.pair, cta_m // self.pair
        thr_mma = tiled_mma.get_slice(half)
        tCgA = thr_mma.partition_A(cute.local_tile(tA, (self.tile_m, TILE_K), (None, None)))
        tCgB = thr_mma.partition_B(cute.local_tile(tB, (self.tile_n, TILE_K), (None, None)))
        _, tiles_m, tiles_n, _ = self.cluster_vmnk
        tAsA, tAgA = cpasync.tma_partition(
            load_a, cta_n, cute.make_layout(tiles_n), cute.group_modes(sA, 0, 3), cute.group_modes(tCgA, 0, 3)
        )
        tBsB, tBgB = cpasync.tma_partition(
            load_b,
            tile_m,
            cute.make_layout(tiles_m),
            cute.group_modes(sB, 0, 3),
            cute.group_modes(tCgB, 0, 3),
        )
        ctas, here = cute.make_layout(self.cluster_vmnk), (half, tile_m, cta_n, 0)
        to_a = to_b = None
        if const_expr(tiles_n > 1):
            to_a = cpasync.create_tma_multicast_mask(ctas, here, mcast_mode=2)
        if const_expr(tiles_m > 1):
            to_b = cpasync.create_tma_multicast_mask(ctas, here, mcast_mode=1)

        free = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
        for index in cutlass.range(cluster, grid[0] * grid[1], clusters, unroll=1):
            row, column = self.position(index, grid)
            for k_tile in cutlass.range(k_tiles, unroll=1):
                ring.producer_acquire(free)
                full = ring.producer_get_barrier(free)
                cute.copy(
                    load_a, tAgA[None, row // self.pair, k_tile], tAsA[None, free.index], tma_bar_ptr=full,
                    mcast_mask=to_a,
                )  # fmt: skip
                cute.copy(
                    load_b, tBgB[None, column, k_tile], tBsB[None, free.index], tma_bar_ptr=full,
                    mcast_mask=to_b,
                )  # fmt: skip
                free.advance()
        ring.producer_tail(free)

    @cute.jit
    def multiply(
        self,
        ring: pipeline.PipelineTmaUmma,
        sums: pipeline.PipelineUmmaAsync,
        tiled_mma: cute.TiledMma,
        sA: cute.Tensor,
        sB: cute.Tensor,
        tCtC: cute.Tensor,
        k_tiles: Int32,
        grid: tuple[Int32, Int32],
    ):
        """The warp that issues the products: they run on their own and free the stages by themselves."""
        _, _, cluster = cute.arch.block_idx()
        _, _, clusters = cute.arch.grid_dim()
        tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
        full = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
        empty = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, ACCUMULATORS)
        for _ in cutlass.range(cluster, grid[0] * grid[1], clusters, unroll=1):
            sums.producer_acquire(empty)
            acc = tCtC[None, None, None, empty.index]
            tiled_mma.set(tcgen05.Field.ACCUMULATE, False)
            for _ in cutlass.range(k_tiles, unroll=1):
                ring.consumer_wait(full)
                for k_block in range_constexpr(cute.size(tCrA, mode=[2])):
                    at = (None, None, k_block, full.index)
                    cute.gemm(tiled_mma, acc, tCrA[at], tCrB[at], acc)
                    tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
                ring.consumer_release(full)
                full.advance()
            sums.producer_commit(empty)
            empty.advance()
        sums.producer_tail(empty)

    @cute.jit
    def write_back(
        self,
        sums: pipeline.PipelineUmmaAsync,
        tCtC: cute.Tensor,
        c: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        grid: tuple[Int32, Int32],
    ):
        """Four warps: every accumulator, slice by slice, through registers and shared memory to c."""
        store_c, tC, sC = c
        tidx, _, _ = cute.arch.thread_idx()
        _, _, cluster = cute.arch.block_idx()
        _, _, clusters = cute.arch.grid_dim()
        slices = self.tile_n // self.slice_mn[1]
        tAcc = cute.flat_divide(tCtC[(None, None), 0, 0, None], self.slice_mn)  # (slice, 1, slices, 2)
        repeat = tcgen05.Repetition(self.slice_mn[1])
        from_tmem = cute.make_copy_atom(tcgen05.Ld32x32bOp(repeat), Float32)
        tiled_load = tcgen05.make_tmem_copy(from_tmem, tAcc[None, None, 0, 0, 0])
        thr_load = tiled_load.get_slice(tidx)
        tLtAcc = thr_load.partition_S(tAcc)
        tLrC = cute.make_rmem_tensor(thr_load.partition_D(sC[None, None, 0]).shape, Float32)
        to_smem = sm100.get_smem_store_op(LayoutEnum.ROW_MAJOR, BFloat16, Float32, tiled_load)
        tiled_store = cute.make_tiled_copy_D(to_smem, tiled_load)
        tSsC, tSrAcc = tiled_store.get_slice(tidx).partition_D(sC), tiled_store.retile(tLrC)
        tSrC = cute.make_rmem_tensor(tSrAcc.shape, BFloat16)
        gC = cute.local_tile(tC, self.slice_mn, (None, None))
        bSsC, bSgC = cpasync.tma_partition(
            store_c, 0, cute.make_layout(1), cute.group_modes(sC, 0, 2), cute.group_modes(gC, 0, 2)
        )
        full = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, ACCUMULATORS)
        for index in cutlass.range(cluster, grid[0] * grid[1], clusters, unroll=1):
            row, column = self.position(index, grid)
            sums.consumer_wait(full)
            for part in range_constexpr(slices):
                cute.copy(tiled_load, tLtAcc[None, None, None, 0, part, full.index], tLrC)
                cute.arch.fence_view_async_tmem_load()
                if const_expr(part == slices - 1):
                    sums.consumer_release(full)  # the accumulator is in registers
                tSrC.store(tSrAcc.load().to(BFloat16))
                # An odd number of slices ends in the buffer where the next tile begins.
                others = 0 if part == 0 and slices % STORE_BUFFERS else STORE_BUFFERS - 1
                if tidx < 32:
                    cute.arch.cp_async_bulk_wait_group(others, read=True)
                self.meet()  # the buffer has been read
                buffer = part % STORE_BUFFERS
                cute.copy(tiled_store, tSrC, tSsC[None, None, None, buffer])
                cute.arch.fence_proxy("async.shared", space="cta")
                self.meet()  # the slice is complete
                if tidx < 32:
                    cute.copy(store_c, bSsC[None, buffer], bSgC[None, row, column * slices + part])
                    cute.arch.cp_async_bulk_commit_group()
            full.advance()
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def meet(self):
        """A barrier of the warps that write back."""
        cute.arch.barrier(barrier_id=2, number_of_threads=32 * STORE_WARPS)

    @cute.jit
    def position(self, index: Int32, grid: tuple[Int32, Int32]) -> tuple[Int32, Int32]:
        """This CTA's 128 rows and its tile's columns, when its cluster's turn is number `index`.

        Groups of `group_m` rows are walked column by column, so that what runs at the same time
        reads few rows of a and few rows of b.
        """
        cta_m, cta_n, _ = cute.arch.block_idx()
        rows, columns = grid
        group_rows = self.group_m // self.cluster_m
        group, within = index // (group_rows * columns), index % (group_rows * columns)
        height = cutlass.min(group_rows, rows - group * group_rows)
        row, column = group * group_rows + within % height, within // height
        return row * self.cluster_m + cta_m, column * self.cluster_n + cta_n
