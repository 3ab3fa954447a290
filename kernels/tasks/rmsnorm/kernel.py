"""RMSNorm in CuTe-DSL for sm_90a and sm_100a: one pass over HBM, the row kept in registers.

A row is shared by `threads_per_row` threads in each CTA of a cluster of `cluster_n`. The loads of a
row leave before anything waits, and with `weight_early` so does the copy of the weight: one latency of
HBM is exposed, not two. The sum of squares goes up warp, CTA, cluster; then every thread scales what
it holds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr, cute, range_constexpr
from cutlass.cute import nvgpu
from cutlass.memory import SmemAllocator

STATIC_AXES = ("hidden_size",)
EPS = 1e-6
WARP = 32
UNROLL = 4
"""Steps of the two-pass loops whose loads may be in flight together."""


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:
    """Compile for one hidden size and any number of tokens; needs no GPU, obeys `CUTE_DSL_ARCH`.

    Returns:
        `launch(hidden_states, weight, output)` for contiguous bfloat16 CUDA tensors of shapes
        [num_tokens, hidden_size], [hidden_size], [num_tokens, hidden_size], each aligned to
        `vector_bits`. It launches on torch's current stream and does not wait.
    """
    kernel = RMSNorm(hidden_size=axes["hidden_size"], **knobs)
    alignment = kernel.vector_bits // 8
    pointer = cute.runtime.make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=alignment)
    compiled = cute.compile(kernel, pointer, pointer, pointer, Int32(1), cuda.CUstream(0))
    return Launch((compiled,), alignment)


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors."""

    compiled: tuple[Any, ...]
    alignment_bytes: int

    def __call__(self, hidden_states: Any, weight: Any, output: Any) -> None:
        import torch  # compiling must not need it

        pointers = (hidden_states.data_ptr(), weight.data_ptr(), output.data_ptr())
        if any(pointer % self.alignment_bytes for pointer in pointers):
            raise ValueError(
                f"hidden_states, weight and output must be aligned to {self.alignment_bytes} bytes"
            )
        num_tokens = hidden_states.shape[0]
        if num_tokens == 0:
            return
        # Packed by hand: 2 us of host time, against 10 us by calling the compiled function (4.8.1, no GPU).
        values = (
            *map(ctypes.c_void_p, pointers),
            ctypes.c_int32(num_tokens),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        self.compiled[0].run_compiled_program([ctypes.addressof(value) for value in values])


def l2_policy(priority: str) -> Int64:
    """An L2 eviction policy for all of the lines accessed with it."""
    ptx = f"createpolicy.fractional.L2::{priority}.b64 {{$w0}}, 1.0;"
    return cute.arch.inline_ptx(ptx, write_only_types=[Int64])


@dataclass(frozen=True)
class RMSNorm:
    """The kernel for one hidden size and one point of the search space."""

    hidden_size: int
    threads_per_row: int
    rows_per_cta: int
    vector_bits: int
    cluster_n: int
    reload: bool
    weight_early: bool
    tiles_per_cta: int
    stream_hint: bool
    l2_hint: str
    min_ctas_per_sm: int

    def __post_init__(self) -> None:
        if self.hidden_size * BFloat16.width % self.vector_bits:
            raise ValueError(
                f"rows of {self.hidden_size} elements do not end on {self.vector_bits}-bit vectors"
            )
        if self.threads_per_row % WARP:
            raise ValueError(f"threads_per_row must be a multiple of {WARP}, not {self.threads_per_row}")
        if (
            self.cluster_n - 1
        ) * self.threads_per_row * self.vector_bits >= self.hidden_size * BFloat16.width:
            raise ValueError(
                f"a row of {self.hidden_size} elements leaves a CTA of {self.cluster_n} without work"
            )
        if self.weight_early and self.vector_bits > 128:
            raise ValueError("weight_early copies at most 128 bits at a time; use vector_bits <= 128")
        if self.reload and (self.tiles_per_cta > 1 or self.weight_early):
            raise ValueError("reload keeps nothing; it needs tiles_per_cta=1 and weight_early=false")

    @cute.jit
    def __call__(
        self,
        x_ptr: cute.Pointer,
        weight_ptr: cute.Pointer,
        output_ptr: cute.Pointer,
        num_tokens: Int32,
        stream: cuda.CUstream,
    ):
        vector = self.vector_bits // BFloat16.width
        step = self.threads_per_row * vector
        # Steps of one CTA over its share of the row; the last may be ragged.
        steps = -(-self.hidden_size // (step * self.cluster_n))
        tiler = (self.rows_per_cta, steps * step)

        # A 64-bit row stride: the tensors may hold more than 2^31 elements.
        row_stride = cute.assume(Int64(self.hidden_size), divby=vector)
        row_major = cute.make_layout((num_tokens, self.hidden_size), stride=(row_stride, 1))
        mX = cute.make_tensor(x_ptr, row_major)
        mO = cute.make_tensor(output_ptr, row_major)
        # The weight as a matrix of equal rows is tiled exactly like x.
        mW = cute.make_tensor(
            weight_ptr, cute.make_layout((self.rows_per_cta, self.hidden_size), stride=(0, 1))
        )

        threads = cute.make_ordered_layout((self.rows_per_cta, self.threads_per_row), order=(1, 0))
        bits = {"num_bits_per_copy": self.vector_bits}
        # Neither x nor the output is read again: stream_hint keeps them from evicting the weight from L1.
        x_in_l1 = nvgpu.CacheEvictionPriority.EVICT_NORMAL
        output_mode = nvgpu.StoreCacheMode.WRITE_BACK
        if const_expr(self.stream_hint):
            x_in_l1, output_mode = nvgpu.CacheEvictionPriority.NO_ALLOCATE, nvgpu.StoreCacheMode.STREAMING
        if const_expr(self.reload):
            x_in_l1 = nvgpu.CacheEvictionPriority.EVICT_LAST  # it comes again, and is let go of then
        load_x = cute.make_copy_atom(nvgpu.CopyG2ROp(), BFloat16, l1c_evict_priority=x_in_l1, **bits)
        reload_x = cute.make_copy_atom(
            nvgpu.CopyG2ROp(), BFloat16, l1c_evict_priority=nvgpu.CacheEvictionPriority.EVICT_FIRST, **bits
        )
        store = cute.make_copy_atom(nvgpu.CopyR2GOp(), BFloat16, store_cache_mode=output_mode, **bits)
        plain = cute.make_copy_atom(nvgpu.CopyUniversalOp(), BFloat16, **bits)
        if const_expr(self.weight_early):
            copy_w = cute.make_copy_atom(nvgpu.cpasync.CopyG2SOp(), BFloat16, **bits)
        else:
            copy_w = plain
        tiled_copy = cute.make_tiled_copy_tv(plain, threads, cute.make_layout((1, vector)))

        clusters = cute.ceil_div(num_tokens, self.rows_per_cta * self.tiles_per_cta)
        if const_expr(self.reload):
            kernel = self.two_pass_kernel(mX, mW, mO, tiled_copy, tiler, load_x, reload_x, copy_w, store)
        else:
            kernel = self.kernel(mX, mW, mO, tiled_copy, tiler, load_x, copy_w, store)
        kernel.launch(
            grid=[clusters * self.cluster_n, 1, 1],
            block=[cute.size(threads), 1, 1],
            cluster=[self.cluster_n, 1, 1] if const_expr(self.cluster_n > 1) else None,
            min_blocks_per_mp=self.min_ctas_per_sm,
            preferred_smem_carveout=-1,  # the driver's default; left out, the DSL asks for a GPU
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        mX: cute.Tensor,
        mW: cute.Tensor,
        mO: cute.Tensor,
        tiled_copy: cute.TiledCopy,
        tiler: cute.Tile,
        load_x: cute.CopyAtom,
        copy_w: cute.CopyAtom,
        store: cute.CopyAtom,
    ):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        grid_size, _, _ = cute.arch.grid_dim()
        rank, tile = bidx % self.cluster_n, bidx // self.cluster_n
        smem = SmemAllocator()
        sums, arrived = self.allocate_sums(smem, tidx)

        thr_copy = tiled_copy.get_slice(tidx)
        cX = cute.make_identity_tensor(mX.shape)
        tXgX = thr_copy.partition_S(cute.local_tile(mX, tiler, (None, rank)))
        tXgO = thr_copy.partition_D(cute.local_tile(mO, tiler, (None, rank)))
        tXcX = thr_copy.partition_S(cute.local_tile(cX, tiler, (None, rank)))
        tWgW = thr_copy.partition_S(cute.local_tile(mW, tiler, (0, rank)))
        tXrX, tWrW, tXrO = (cute.make_fragment_like(tWgW) for _ in range(3))
        tXrX.fill(0)  # what lies outside the row adds nothing to the sum

        # ptxas sinks plain loads of the weight to their use, behind the arrival of x. An asynchronous copy
        # stays where it is; each thread reads back only what it copied itself, so no barrier is needed.
        inside_w = self.inside(tXcX, 0, mW.shape)
        if const_expr(self.weight_early):
            sW = smem.allocate_tensor(BFloat16, cute.make_layout(tiler, stride=(0, 1)), 16)
            tWsW = thr_copy.partition_S(sW)
            cute.copy(copy_w, tWgW, tWsW, pred=inside_w)
            cute.arch.cp_async_commit_group()
        else:
            tWsW = tWgW
            cute.copy(copy_w, tWgW, tWrW, pred=inside_w)
        l2_x, l2_output = self.l2_policies()
        gX, inside = tXgX[None, None, None, tile], self.inside(tXcX, tile, mX.shape)
        cute.copy(load_x, gX, tXrX, pred=inside, cache_policy=l2_x)
        if const_expr(self.cluster_n > 1):
            cute.arch.cluster_wait()

        for i in cutlass.range(self.tiles_per_cta, unroll=1):
            gO, inside = tXgO[None, None, None, tile], self.inside(tXcX, tile, mX.shape)
            x = tXrX.load().to(Float32)
            tile += grid_size // self.cluster_n
            if const_expr(self.tiles_per_cta > 1):
                # The next row is on its way while this one is reduced.
                next_gX, next_inside = tXgX[None, None, None, tile], self.inside(tXcX, tile, mX.shape)
                cute.copy(load_x, next_gX, tXrX, pred=next_inside, cache_policy=l2_x)
            mean_square = self.row_sum(x * x, sums, arrived, i, tidx, rank) * (1 / self.hidden_size)
            rstd = cute.math.rsqrt(mean_square + EPS, fastmath=True)
            if const_expr(self.weight_early):
                cute.arch.cp_async_wait_group(0)
                cute.autovec_copy(tWsW, tWrW)
            tXrO.store((x * rstd * tWrW.load().to(Float32)).to(BFloat16))
            cute.copy(store, tXrO, gO, pred=inside, cache_policy=l2_output)

    @cute.kernel
    def two_pass_kernel(
        self,
        mX: cute.Tensor,
        mW: cute.Tensor,
        mO: cute.Tensor,
        tiled_copy: cute.TiledCopy,
        tiler: cute.Tile,
        load_x: cute.CopyAtom,
        reload_x: cute.CopyAtom,
        copy_w: cute.CopyAtom,
        store: cute.CopyAtom,
    ):
        """Loops over the row twice instead of keeping it: few registers, so that all warps fit an SM."""
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        rank, tile = bidx % self.cluster_n, bidx // self.cluster_n
        sums, arrived = self.allocate_sums(SmemAllocator(), tidx)

        thr_copy = tiled_copy.get_slice(tidx)
        cX = cute.make_identity_tensor(mX.shape)
        gX = thr_copy.partition_S(cute.local_tile(mX, tiler, (tile, rank)))[None, 0, None]
        gO = thr_copy.partition_D(cute.local_tile(mO, tiler, (tile, rank)))[None, 0, None]
        cX = thr_copy.partition_S(cute.local_tile(cX, tiler, (tile, rank)))[0, 0, None]
        gW = thr_copy.partition_S(cute.local_tile(mW, tiler, (0, rank)))[None, 0, None]
        rX, rW, rO = (cute.make_fragment_like(gW[None, 0]) for _ in range(3))
        steps = cute.size(gX, mode=[1])

        squares = cute.make_rmem_tensor(rX.shape, Float32)
        squares.fill(0.0)
        for step in cutlass.range(steps, unroll=UNROLL):
            if cute.elem_less(cX[step], mX.shape):
                cute.copy(load_x, gX[None, step], rX)
                x = rX.load().to(Float32)
                squares.store(squares.load() + x * x)
        if const_expr(self.cluster_n > 1):
            cute.arch.cluster_wait()
        total = self.row_sum(squares.load(), sums, arrived, Int32(0), tidx, rank)
        rstd = cute.math.rsqrt(total * (1 / self.hidden_size) + EPS, fastmath=True)

        l2_x, l2_output = self.l2_policies()
        for step in cutlass.range(steps, unroll=UNROLL):
            if cute.elem_less(cX[step], mX.shape):
                cute.copy(reload_x, gX[None, step], rX, cache_policy=l2_x)
                cute.copy(copy_w, gW[None, step], rW)
                rO.store((rX.load().to(Float32) * rstd * rW.load().to(Float32)).to(BFloat16))
                cute.copy(store, rO, gO[None, step], cache_policy=l2_output)

    @cute.jit
    def inside(self, tXcX: cute.Tensor, tile: Int32, shape: cute.Shape) -> cute.Tensor:
        """Which vectors of this thread lie inside `shape`: booleans (1, 1, steps)."""
        steps = cute.size(tXcX, mode=[2])
        pred = cute.make_rmem_tensor((1, 1, steps), Boolean)
        for step in range_constexpr(steps):
            pred[0, 0, step] = cute.elem_less(tXcX[0, 0, step, tile], shape)
        return pred

    def l2_policies(self) -> tuple[Int64 | None, Int64 | None]:
        """L2 policies of x and the output, None for the default.

        x is dead once read. Evicted first, it leaves the L2 to dirty lines of the output, whose
        write-back then interrupts the reads less often.
        """
        if self.l2_hint == "none":
            return None, None
        x_first = l2_policy("evict_first")
        return x_first, l2_policy("evict_last") if self.l2_hint == "x_first_output_last" else None

    @cute.jit
    def allocate_sums(self, smem: SmemAllocator, tidx: Int32):
        """Shared memory (partial sums of a row, rows, 2) and its two barriers, used in turn.

        With two sets a warp that runs ahead writes where nobody reads any more, so that one barrier
        per tile is enough.
        """
        shape = (self.threads_per_row // WARP * self.cluster_n, self.rows_per_cta, 2)
        sums = smem.allocate_tensor(Float32, cute.make_ordered_layout(shape, order=(0, 1, 2)), 16)
        arrived = smem.allocate_array(Int64, 2)
        if const_expr(self.cluster_n > 1):
            if tidx == 0:
                cute.arch.mbarrier_init(arrived, 1)
                cute.arch.mbarrier_init(arrived + 1, 1)
            cute.arch.mbarrier_init_fence()
            # Peers must be ready before they are written to; waited for once the loads are out.
            cute.arch.cluster_arrive_relaxed()
        return sums, arrived

    @cute.jit
    def row_sum(
        self,
        values: cute.TensorSSA,
        sums: cute.Tensor,
        arrived: cute.Pointer,
        i: Int32,
        tidx: Int32,
        rank: Int32,
    ) -> Float32:
        """Sum over the whole row, of which this thread holds `values`, for the CTA's i-th tile."""
        total = values.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        total = cute.arch.warp_reduction_sum(total)

        warps_per_row = self.threads_per_row // WARP
        row, warp, lane = tidx // self.threads_per_row, tidx % self.threads_per_row // WARP, tidx % WARP
        sSum = sums[None, None, i % 2]
        slot = sSum.iterator + sSum.layout((rank * warps_per_row + warp, row))
        if const_expr(self.cluster_n > 1):
            # Every warp writes its sum into the same slot of every CTA, its own included, and the bytes
            # count on the receiver's barrier. Unlike a cluster barrier with release semantics this
            # flushes no cache, and no CTA leaves before all that is sent to it has arrived.
            barrier = arrived + i % 2
            if tidx == 0:
                cute.arch.mbarrier_arrive_and_expect_tx(barrier, cute.size(sSum) * Float32.width // 8)
            if lane < self.cluster_n:
                cute.arch.store_async_dsmem(slot, total.bitcast(Int32), barrier, lane)
            cute.arch.mbarrier_wait(barrier, i // 2 % 2)
        elif const_expr(warps_per_row > 1):
            if lane == 0:
                cute.arch.store(slot, total, ss="cta")
            cute.arch.sync_threads()
        if const_expr(warps_per_row * self.cluster_n > 1):
            total = sSum[None, row].load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        return total
