"""GEMM in CuTe-DSL for sm_90a: persistent, warp-specialised, WGMMA fed by TMA.

One warp keeps a ring of shared memory full; two warpgroups multiply out of it. They work on one tile
together (cooperative) or on two in turns (ping-pong), so that the one writes its tile back while
the other multiplies. The tiles that share a matrix's rows are near to each other in time, for L2,
and in a cluster load them once. Where there are few tiles and a long K, `split_k` CTAs of a cluster
share a tile, each with a part of K, and add up through each other's shared memory. The `iket` ranges
leave no code behind, except under `run-iket`.
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
import cutlass.utils.hopper_helpers as sm90
from cutlass import BFloat16, Float32, Int32, Int64, const_expr, cute, pipeline, range_constexpr
from cutlass.cute.experimental import iket
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import HardwareInfo

STATIC_AXES = ()
TILE_K = 64
"""One line of 128 bytes, the widest swizzle."""
WARPGROUP = 128
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
    """How many clusters of so many CTAs a GPU holds at once: those of four leave some SMs out, and what
    starts later comes late (H200, 2026-11-30, 4096^3: 481 TFLOP/s instead of 795)."""
    return HardwareInfo(device).get_max_active_clusters(ctas)


@dataclass(frozen=True)
class Gemm:
    """The kernel for one point of the search space."""

    tile_m: int
    tile_n: int
    stages: int
    cluster_m: int
    cluster_n: int
    ping_pong: bool
    group_m: int
    split_k: int

    def __post_init__(self) -> None:
        if self.mma_m % (64 * self.warpgroups):
            raise ValueError(f"tile_m must be a multiple of {64 * self.warpgroups}, not {self.tile_m}")
        if self.tile_m % (8 * self.cluster_n) or self.tile_n % (8 * self.cluster_m):
            raise ValueError("each CTA of a cluster must load 8 rows or a multiple of what they share")
        if (registers := self.mma_m * self.tile_n // (self.warpgroups * WARPGROUP)) > 128:
            raise ValueError(f"the accumulator would take {registers} registers a thread; at most 128 fit")
        if self.smem_bytes > SMEM_BYTES:
            raise ValueError(f"{self.smem_bytes} bytes of shared memory; a CTA has {SMEM_BYTES}")
        if self.group_m % self.cluster_m:
            raise ValueError(f"group_m must be a multiple of cluster_m={self.cluster_m}, not {self.group_m}")
        if (ctas := math.prod(self.cluster)) > 16:
            raise ValueError(f"a cluster of {ctas} CTAs; at most 16 are possible")
        if self.split_k > 1 and self.ping_pong:
            raise ValueError("with split_k a cluster has one tile, so ping_pong has no second one")
        if not self.slice_width:
            raise ValueError(
                f"a tile of {self.tile_m} x {self.tile_n} cannot be shared by {self.split_k} CTAs"
            )
        if self.split_k > 1 and 4 * self.mma_m * self.tile_n > self.ring_bytes:
            raise ValueError(
                f"{self.stages} stages are too small to hold an accumulator; use more for split_k"
            )

    @property
    def mma_m(self) -> int:
        """Rows that are multiplied, at least 64; those beyond tile_m are neither loaded nor stored."""
        return max(64, self.tile_m)

    @property
    def teams(self) -> int:
        """Groups of consumers with a tile of their own."""
        return 2 if self.ping_pong else 1

    @property
    def warpgroups(self) -> int:
        """Those that share a tile, 64 rows each at a time."""
        return 1 if self.ping_pong or self.mma_m == 64 else 2

    @property
    def threads(self) -> int:
        return (1 + self.teams * self.warpgroups) * WARPGROUP

    @property
    def cluster(self) -> tuple[int, int, int]:
        return self.cluster_m, self.cluster_n, self.split_k

    @property
    def slice_width(self) -> int:
        """Columns that are written back at a time, so that each CTA has equally many; 0: impossible."""
        down = self.mma_m // (64 * self.warpgroups)
        return next(
            (
                width
                for width in (64, 32, 16)
                if self.tile_n % width == 0 and down * self.tile_n // width % self.split_k == 0
            ),
            0,
        )

    @property
    def slices(self) -> tuple[int, int]:
        """How many make a tile."""
        return self.mma_m // (64 * self.warpgroups), self.tile_n // self.slice_width

    @property
    def stored_mn(self) -> tuple[int, int]:
        """What of a slice is stored."""
        return min(self.tile_m, 64 * self.warpgroups), self.slice_width

    @property
    def ring_bytes(self) -> int:
        return self.stages * (self.mma_m + self.tile_n) * TILE_K * BFloat16.width // 8

    @property
    def smem_bytes(self) -> int:
        buffers = self.teams * STORE_BUFFERS * 64 * self.warpgroups * self.slice_width * BFloat16.width // 8
        barriers = 8 * (2 * self.stages + self.teams)
        return self.ring_bytes + buffers + barriers

    def layouts(self) -> tuple[cute.ComposedLayout, ...]:
        """Shared memory of a (mma_m, TILE_K, stages), b (tile_n, TILE_K, stages) and c (slice, buffers)."""
        tile, row_major = (self.mma_m, self.tile_n, TILE_K), LayoutEnum.ROW_MAJOR
        slice_mn = (64 * self.warpgroups, self.slice_width)
        return (
            sm90.make_smem_layout_a(row_major, tile, BFloat16, self.stages),
            sm90.make_smem_layout_b(row_major, tile, BFloat16, self.stages),
            sm90.make_smem_layout_epi(BFloat16, row_major, slice_mn, self.teams * STORE_BUFFERS),
        )

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

        load_a, tA = self.load_atom(mA, self.tile_m, shared_by=self.cluster_n)
        load_b, tB = self.load_atom(mB, self.tile_n, shared_by=self.cluster_m)
        sC = sm90.make_smem_layout_epi(BFloat16, LayoutEnum.ROW_MAJOR, self.stored_mn, 1)
        # slice_ would drop the swizzle of a slice of 8 x 16 (DSL 4.8.1).
        store_c, tC = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileS2GOp(), mC, cute.select(sC, mode=[0, 1]), self.stored_mn
        )
        tiled_mma = sm90.make_trivial_tiled_mma(
            BFloat16, BFloat16, OperandMajorMode.K, OperandMajorMode.K, Float32,
            (self.warpgroups, 1, 1), (64, self.tile_n),
        )  # fmt: skip

        # In units of clusters; what sticks out of c is neither read nor written by TMA.
        rows = cute.ceil_div(m, self.tile_m * self.cluster_m)
        columns = cute.ceil_div(n, self.tile_n * self.cluster_n)
        if const_expr(self.split_k == 1):
            ctas_k = cutlass.min(clusters, rows * columns)
        else:
            ctas_k = self.split_k * rows * columns  # one tile each: the sum takes the ring's place
        self.kernel((load_a, tA), (load_b, tB), (store_c, tC), tiled_mma, (rows, columns)).launch(
            grid=[self.cluster_m, self.cluster_n, ctas_k],
            cluster=self.cluster,
            block=[self.threads, 1, 1],
            min_blocks_per_mp=1,
            stream=stream,
        )

    def load_atom(self, matrix: cute.Tensor, rows: int, shared_by: int) -> tuple[cute.CopyAtom, cute.Tensor]:
        """A TMA load of `rows` by TILE_K, of which each of the CTAs that share it loads a part for all."""
        one, many = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
        layout = sm90.make_smem_layout_a(LayoutEnum.ROW_MAJOR, (rows, 0, TILE_K), BFloat16, 1)
        return cpasync.make_tiled_tma_atom(
            many if shared_by > 1 else one, matrix, cute.slice_(layout, (None, None, 0)), (rows, TILE_K),
            num_multicast=shared_by,
        )  # fmt: skip

    @cute.kernel
    def kernel(
        self,
        a: tuple[cute.CopyAtom, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor],
        c: tuple[cute.CopyAtom, cute.Tensor],
        tiled_mma: cute.TiledMma,
        grid: tuple[Int32, Int32],
    ):
        warp_idx = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp_idx == 0:
            for atom, _ in (a, b, c):
                cpasync.prefetch_descriptor(atom)

        smem = SmemAllocator()
        sA, sB, sC = (
            smem.allocate_tensor(BFloat16, layout.outer, byte_alignment=1024, swizzle=layout.inner)
            for layout in self.layouts()
        )
        team = warp_idx // 4 - 1 if self.ping_pong else Int32(0)
        turns = pipeline.PipelineOrder.create(
            barrier_storage=smem.allocate_array(Int64, self.teams),
            depth=1,
            length=self.teams,
            group_id=team,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, WARPGROUP),
            defer_sync=True,  # the ring's sync serves both
        )
        ring = pipeline.PipelineTmaAsync.create(
            barrier_storage=smem.allocate_array(Int64, 2 * self.stages),
            num_stages=self.stages,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, self.warpgroups * WARPGROUP),
            tx_count=(self.tile_m + self.tile_n) * TILE_K * BFloat16.width // 8,
            cta_layout_vmnk=cute.make_layout((1, *self.cluster)),
            enable_multicast_signaling=True,
        )

        # All CTAs of a cluster walk equally far; beyond the end of K, TMA reads zeros.
        k_tiles = cute.ceil_div(a[1].shape[1], TILE_K * self.split_k)
        if warp_idx < 4:
            if const_expr(self.threads > 2 * WARPGROUP):
                cute.arch.setmaxregister_decrease(40)
            if warp_idx == 0:
                self.load(ring, (*a, sA), (*b, sB), k_tiles, grid)
            if const_expr(self.split_k > 1):
                for _ in range_constexpr(2):  # when the sums are there, and when they were read
                    cute.arch.cluster_arrive()
                    cute.arch.cluster_wait()
        else:
            if const_expr(self.threads > 2 * WARPGROUP):
                cute.arch.setmaxregister_increase(232)
            self.multiply(ring, turns, team, tiled_mma, sA, sB, (*c, sC), k_tiles, grid)

    @cute.jit
    def load(
        self,
        ring: pipeline.PipelineTmaAsync,
        a: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        b: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        k_tiles: Int32,
        grid: tuple[Int32, Int32],
    ):
        """The producer: every tile of this CTA, K tile by K tile, into the ring."""
        (load_a, tA, sA), (load_b, tB, sB) = a, b
        cta_m, cta_n, cta_k, cluster, clusters = self.place()
        gA = cute.local_tile(tA, (self.tile_m, TILE_K), (None, None))
        gB = cute.local_tile(tB, (self.tile_n, TILE_K), (None, None))
        tAsA, tAgA = cpasync.tma_partition(
            load_a, cta_n, cute.make_layout(self.cluster_n),
            cute.group_modes(cute.local_tile(sA, (self.tile_m, TILE_K), (0, 0, None)), 0, 2),
            cute.group_modes(gA, 0, 2),
        )  # fmt: skip
        tBsB, tBgB = cpasync.tma_partition(
            load_b, cta_m, cute.make_layout(self.cluster_m),
            cute.group_modes(sB, 0, 2), cute.group_modes(gB, 0, 2),
        )  # fmt: skip
        ctas, here = cute.make_layout((1, *self.cluster)), (0, cta_m, cta_n, cta_k)
        to_a = to_b = None
        if const_expr(self.cluster_n > 1):
            to_a = cpasync.create_tma_multicast_mask(ctas, here, mcast_mode=2)
        if const_expr(self.cluster_m > 1):
            to_b = cpasync.create_tma_multicast_mask(ctas, here, mcast_mode=1)

        free = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, self.stages)
        for index in cutlass.range(cluster, grid[0] * grid[1], clusters, unroll=1):
            iket.range_push("load_tile")
            row, column = self.tile(index, grid)
            for k_tile in cutlass.range(cta_k * k_tiles, (cta_k + 1) * k_tiles, unroll=1):
                iket.range_push("load_acquire")
                ring.producer_acquire(free)
                iket.range_pop()
                full = ring.producer_get_barrier(free)
                cute.copy(
                    load_a, tAgA[None, row, k_tile], tAsA[None, free.index], tma_bar_ptr=full, mcast_mask=to_a
                )
                cute.copy(
                    load_b, tBgB[None, column, k_tile], tBsB[None, free.index], tma_bar_ptr=full,
                    mcast_mask=to_b,
                )  # fmt: skip
                free.advance()
            iket.range_pop()
        ring.producer_tail(free)

    @cute.jit
    def multiply(
        self,
        ring: pipeline.PipelineTmaAsync,
        turns: pipeline.PipelineOrder,
        team: Int32,
        tiled_mma: cute.TiledMma,
        sA: cute.Tensor,
        sB: cute.Tensor,
        c: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        k_tiles: Int32,
        grid: tuple[Int32, Int32],
    ):
        """A team of consumers: its tiles one after the other, each multiplied and then written back."""
        tidx, _, _ = cute.arch.thread_idx()
        _, _, _, cluster, clusters = self.place()
        tidx = tidx % (self.warpgroups * WARPGROUP) if self.ping_pong else tidx - WARPGROUP
        # The same for a whole warpgroup: descriptors live in uniform registers.
        thr_mma = tiled_mma.get_slice(cute.arch.make_warp_uniform(tidx // WARPGROUP) * WARPGROUP)
        tCrA = tiled_mma.make_fragment_A(thr_mma.partition_A(sA))
        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((self.mma_m, self.tile_n)), Float32)

        full = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, self.stages)
        turn = turns.state.clone()
        if const_expr(self.ping_pong):
            full.advance(team * k_tiles)
        for index in cutlass.range(
            cluster + team * clusters, grid[0] * grid[1], self.teams * clusters, unroll=1
        ):
            read = full.clone()
            if const_expr(self.ping_pong):
                iket.range_push("multiply_wait_turn")
                turns.wait(turn)
                iket.range_pop()
            iket.range_push("multiply_tile")
            # The first products stand before the loop: in it, their overwriting would serialise all.
            self.wait(ring, full)
            self.issue(tiled_mma, acc, tCrA, tCrB, full.index, accumulate=False)
            full.advance()
            for _ in cutlass.range(1, k_tiles, unroll=1):
                self.wait(ring, full)
                self.issue(tiled_mma, acc, tCrA, tCrB, full.index, accumulate=True)
                full.advance()
                warpgroup.wait_group(1)
                ring.consumer_release(read)
                read.advance()
            if const_expr(self.ping_pong):
                turn = turns.arrive(turn)
                full.advance(k_tiles)  # those of the other team
            warpgroup.wait_group(0)
            ring.consumer_release(read)
            iket.range_pop()
            iket.range_push("multiply_store")
            at = self.tile(index, grid)
            if const_expr(self.split_k > 1):
                self.meet(team)  # the ring is idle: it takes the accumulators
                sSum = self.sums(sA.iterator)
                vectors = cute.make_tensor(acc.iterator, cute.make_layout((4, cute.size(acc) // 4)))
                cute.autovec_copy(vectors, sSum[None, None, tidx])
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
            self.write_back(tiled_mma, acc, sA, c, tidx, team, at)
            iket.range_pop()
            if const_expr(self.split_k > 1):
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def wait(self, ring: pipeline.PipelineTmaAsync, full: pipeline.PipelineState):
        """Until the slot is full, as a range of its own in a trace."""
        iket.range_push("multiply_wait")
        ring.consumer_wait(full)
        iket.range_pop()

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
        sA: cute.Tensor,
        c: tuple[cute.CopyAtom, cute.Tensor, cute.Tensor],
        tidx: Int32,
        team: Int32,
        at: tuple[Int32, Int32],
    ):
        """This CTA's slices of a tile through shared memory to c."""
        store_c, tC, sC = c
        to_smem = cute.make_copy_atom(warp.StMatrix8x8x16bOp(transpose=False, num_matrices=4), BFloat16)
        tiled_copy = cute.make_tiled_copy_S(to_smem, cute.make_tiled_copy_C_atom(to_smem, tiled_mma))
        thr_copy = tiled_copy.get_slice(tidx)
        tSsC = thr_copy.partition_D(sC)
        tSrC = cute.make_rmem_tensor(cute.shape(thr_copy.partition_S(sC))[:3], BFloat16)
        gC = cute.local_tile(tC, self.stored_mn, (None, None))
        bSsC, bSgC = cpasync.tma_partition(
            store_c, 0, cute.make_layout(1),
            cute.group_modes(cute.local_tile(sC, self.stored_mn, (0, 0, None)), 0, 2),
            cute.group_modes(gC, 0, 2),
        )  # fmt: skip
        down, across = self.slices
        own = down * across // self.split_k
        _, _, cta_k, _, _ = self.place()
        for turn in range_constexpr(own):
            number = cta_k * own + turn
            buffer = team * STORE_BUFFERS + turn % STORE_BUFFERS
            # An odd number of slices ends in the buffer where the next tile begins.
            others = 0 if turn == 0 and own % STORE_BUFFERS else STORE_BUFFERS - 1
            if tidx < 32:
                cute.arch.cp_async_bulk_wait_group(others, read=True)
            self.meet(team)  # the buffer has been read
            if const_expr(self.split_k == 1):
                for value in range_constexpr(cute.size(tSrC)):
                    tSrC[value] = acc[turn * cute.size(tSrC) + value].to(BFloat16)
            else:
                self.add_up(sA.iterator, number, tidx, tSrC)
            cute.copy(tiled_copy, tSrC, tSsC[None, None, None, buffer])
            cute.arch.fence_proxy("async.shared", space="cta")
            self.meet(team)  # the slice is complete
            if tidx < 32:
                row, column = at[0] * down + number // across, at[1] * across + number % across
                cute.copy(store_c, bSsC[None, buffer], bSgC[None, row, column])
                cute.arch.cp_async_bulk_commit_group()

    @cute.jit
    def add_up(self, ring: cute.Pointer, number: Int32, tidx: Int32, tSrC: cute.Tensor):
        """Slice `number` of the tile, summed in the order of K over the accumulators of the cluster."""
        cta_m, cta_n, _, _, _ = self.place()
        vectors = cute.size(tSrC) // 4
        total = cute.make_rmem_tensor((4, vectors), Float32)
        part = cute.make_rmem_tensor((4, vectors), Float32)
        total.fill(0.0)
        for cta_k in range_constexpr(self.split_k):
            rank = cta_m + self.cluster_m * (cta_n + self.cluster_n * cta_k)
            sSum = self.sums(cute.arch.map_dsmem_ptr(cute.recast_ptr(ring, dtype=Float32), rank))
            for vector in range_constexpr(vectors):
                cute.autovec_copy(sSum[None, number * vectors + vector, tidx], part[None, vector])
            total.store(total.load() + part.load())
        for value in range_constexpr(cute.size(tSrC)):
            tSrC[value] = total[value].to(BFloat16)

    def sums(self, ring: cute.Pointer) -> cute.Tensor:
        """Accumulators where the ring was: (4, vectors, threads), a vector of all threads in a row."""
        threads = self.warpgroups * WARPGROUP
        shape = (4, self.mma_m * self.tile_n // threads // 4, threads)
        return cute.make_tensor(
            cute.recast_ptr(ring, dtype=Float32), cute.make_layout(shape, stride=(1, 4 * threads, 4))
        )

    @cute.jit
    def place(self) -> tuple[Int32, Int32, Int32, Int32, Int32]:
        """This CTA's coordinates (m, n, k) in its cluster, the cluster's number, how many there are."""
        cta_m, cta_n, z = cute.arch.block_idx()
        _, _, ctas_k = cute.arch.grid_dim()
        return cta_m, cta_n, z % self.split_k, z // self.split_k, ctas_k // self.split_k

    @cute.jit
    def meet(self, team: Int32):
        """A barrier of one team; number 0 is the whole CTA's."""
        cute.arch.barrier(barrier_id=1 + team, number_of_threads=self.warpgroups * WARPGROUP)

    @cute.jit
    def tile(self, index: Int32, grid: tuple[Int32, Int32]) -> tuple[Int32, Int32]:
        """This CTA's tile of c, when its cluster's is number `index` in the order of time.

        Groups of `group_m` rows are walked column by column, so that what runs at the same time
        reads few rows of a and few rows of b.
        """
        cta_m, cta_n, _, _, _ = self.place()
        rows, columns = grid
        group_rows = self.group_m // self.cluster_m
        group, within = index // (group_rows * columns), index % (group_rows * columns)
        height = cutlass.min(group_rows, rows - group * group_rows)
        row, column = group * group_rows + within % height, within // height
        return row * self.cluster_m + cta_m, column * self.cluster_n + cta_n
