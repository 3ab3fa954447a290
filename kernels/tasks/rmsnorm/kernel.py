"""RMSNorm in CuTe-DSL for sm_90a and sm_100a: one pass over HBM, the row kept in registers.

A row is shared by `threads_per_row` threads in each CTA of a cluster of `cluster_n`. The loads of a
row and of the weight are all issued before anything waits, so that one memory latency is exposed and
not two. The sum of squares goes up warp, CTA, cluster; then every thread scales what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr, range_constexpr
from cutlass.cute import nvgpu
from cutlass.utils import SmemAllocator

STATIC_AXES = ("hidden_size",)
EPS = 1e-6
WARP = 32


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:
    """Compile for one hidden size and any number of tokens; needs no GPU, obeys `CUTE_DSL_ARCH`.

    Returns:
        `launch(hidden_states, weight, output)` for contiguous bfloat16 CUDA tensors of shapes
        [num_tokens, hidden_size], [hidden_size], [num_tokens, hidden_size], each aligned to
        `vector_bits`. It launches on torch's current stream and does not wait.
    """
    kernel = RMSNorm(hidden_size=axes["hidden_size"], **knobs)
    pointer = _pointer(0, kernel.vector_bits)
    compiled = cute.compile(kernel, pointer, pointer, pointer, Int32(1), cuda.CUstream(0))
    return Launch((compiled,), kernel.vector_bits)


def _pointer(address: int, vector_bits: int) -> cute.Pointer:
    return cute.runtime.make_ptr(BFloat16, address, cute.AddressSpace.gmem, assumed_align=vector_bits // 8)


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors. Bare pointers are the cheapest to pass."""

    compiled: tuple[Any, ...]
    vector_bits: int

    def __call__(self, hidden_states: Any, weight: Any, output: Any) -> None:
        import torch  # noqa: PLC0415 - compiling must not need torch

        if hidden_states.shape[0] == 0:
            return
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        pointers = [_pointer(t.data_ptr(), self.vector_bits) for t in (hidden_states, weight, output)]
        self.compiled[0](*pointers, hidden_states.shape[0], stream)


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
        if const_expr(self.stream_hint):
            # Neither x nor the output is read again: keep them from evicting the weight from L1.
            load_x = cute.make_copy_atom(
                nvgpu.CopyG2ROp(),
                BFloat16,
                l1c_evict_priority=nvgpu.CacheEvictionPriority.NO_ALLOCATE,
                **bits,
            )
            store = cute.make_copy_atom(
                nvgpu.CopyR2GOp(), BFloat16, store_cache_mode=nvgpu.StoreCacheMode.STREAMING, **bits
            )
        else:
            load_x = store = cute.make_copy_atom(nvgpu.CopyUniversalOp(), BFloat16, **bits)
        load_w = cute.make_copy_atom(nvgpu.CopyUniversalOp(), BFloat16, **bits)
        tiled_copy = cute.make_tiled_copy_tv(load_w, threads, cute.make_layout((1, vector)))

        clusters = cute.ceil_div(num_tokens, self.rows_per_cta * self.tiles_per_cta)
        self.kernel(mX, mW, mO, tiled_copy, tiler, load_x, load_w, store).launch(
            grid=[clusters * self.cluster_n, 1, 1],
            block=[cute.size(threads), 1, 1],
            cluster=[self.cluster_n, 1, 1] if const_expr(self.cluster_n > 1) else None,
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
        load_w: cute.CopyAtom,
        store: cute.CopyAtom,
    ):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        grid_size, _, _ = cute.arch.grid_dim()
        rank = bidx % self.cluster_n
        if const_expr(self.cluster_n > 1):
            # Peers must run before their shared memory is written; waited for once the loads are out.
            cute.arch.cluster_arrive_relaxed()

        thr_copy = tiled_copy.get_slice(tidx)
        cX = cute.make_identity_tensor(mX.shape)
        tXgX = thr_copy.partition_S(cute.local_tile(mX, tiler, (None, rank)))
        tXgO = thr_copy.partition_D(cute.local_tile(mO, tiler, (None, rank)))
        tXcX = thr_copy.partition_S(cute.local_tile(cX, tiler, (None, rank)))
        tWgW = thr_copy.partition_S(cute.local_tile(mW, tiler, (0, rank)))
        tXrX, tWrW, tXrO = (cute.make_fragment_like(tWgW) for _ in range(3))
        tXrX.fill(0)
        tWrW.fill(0)

        # The weight goes first: nothing that waits for x can then come between the loads.
        tile = bidx // self.cluster_n
        inside = self.inside(tXcX, tile, mX.shape)
        cute.copy(load_w, tWgW, tWrW, pred=self.inside(tXcX, 0, mW.shape))
        cute.copy(load_x, tXgX[None, None, None, tile], tXrX, pred=inside)

        sums = SmemAllocator().allocate_tensor(
            Float32, cute.make_ordered_layout((self.partials, self.rows_per_cta, 2), order=(0, 1, 2)), 16
        )
        if const_expr(self.cluster_n > 1):
            cute.arch.cluster_wait()
        elif const_expr(self.weight_early):
            # Left alone, ptxas sinks the weight's loads below the first use of x.
            cute.arch.sync_threads()

        for i in cutlass.range(self.tiles_per_cta, unroll=1):
            gX, gO = tXgX[None, None, None, tile], tXgO[None, None, None, tile]
            inside = self.inside(tXcX, tile, mX.shape)
            x = tXrX.load()
            tile += grid_size // self.cluster_n
            if const_expr(self.tiles_per_cta > 1):
                # The next row is on its way while this one is reduced.
                cute.copy(load_x, tXgX[None, None, None, tile], tXrX, pred=self.inside(tXcX, tile, mX.shape))
            x32 = x.to(Float32)
            mean_square = self.row_sum(x32 * x32, sums[None, None, i % 2], tidx, rank) * (
                1 / self.hidden_size
            )
            rstd = cute.math.rsqrt(mean_square + EPS, fastmath=True)
            if const_expr(self.reload):
                cute.copy(load_x, gX, tXrX, pred=inside)
                x32 = tXrX.load().to(Float32)
            tXrO.store((x32 * rstd * tWrW.load().to(Float32)).to(BFloat16))
            cute.copy(store, tXrO, gO, pred=inside)

    @property
    def partials(self) -> int:
        """Partial sums of a row: one per warp and CTA."""
        return max(self.threads_per_row // WARP, 1) * self.cluster_n

    @cute.jit
    def inside(self, tXcX: cute.Tensor, tile: Int32, shape: cute.Shape) -> cute.Tensor:
        """Which vectors of the thread lie inside `shape`: (1, 1, steps) booleans."""
        steps = cute.size(tXcX, mode=[2])
        pred = cute.make_rmem_tensor((1, 1, steps), Boolean)
        for step in range_constexpr(steps):
            pred[0, 0, step] = cute.elem_less(tXcX[0, 0, step, tile], shape)
        return pred

    @cute.jit
    def row_sum(self, values: cute.TensorSSA, sums: cute.Tensor, tidx: Int32, rank: Int32) -> Float32:
        """Sum over the row this thread works on; sums is (partials, rows) shared memory.

        The caller alternates between two `sums`: a warp that runs ahead then writes into the one that
        nobody reads any more, and one barrier per row is enough.
        """
        total = values.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        total = cute.arch.warp_reduction_sum(total, threads_in_group=min(self.threads_per_row, WARP))
        if const_expr(self.partials > 1):
            lane = tidx % WARP
            row = tidx // self.threads_per_row
            warp = tidx % self.threads_per_row // WARP
            slot = sums.iterator + sums.layout((rank * self.partials // self.cluster_n + warp, row))
            if const_expr(self.cluster_n > 1):
                if lane < self.cluster_n:
                    peer_slot = cute.arch.map_dsmem_ptr(slot, lane).toint()
                    cute.arch.store(
                        cute.make_ptr(Float32, peer_slot, cute.AddressSpace.smem), total, ss="cluster"
                    )
                cute.arch.cluster_arrive()
                cute.arch.cluster_wait()
            else:
                if lane == 0:
                    cute.arch.store(slot, total, ss="cta")
                cute.arch.sync_threads()
            total = sums[None, row].load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        return total
