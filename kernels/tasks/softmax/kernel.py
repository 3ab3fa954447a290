"""Softmax in CuTe-DSL for sm_90a and sm_100a: one pass over HBM, the row kept in registers, one barrier.

Each warp takes the maximum of what it holds and the sum of its exponentials relative to that; the
pairs meet once in shared memory. What a thread has exponentiated needs only one more factor then.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
from cutlass import BFloat16, Boolean, Float32, Int32, Int64, const_expr, cute, range_constexpr
from cutlass.cute import nvgpu
from cutlass.memory import SmemAllocator

STATIC_AXES = ("width",)
WARP = 32
LOG2_E = math.log2(math.e)
LOWEST = -3.0e38
"""Stands for minus infinity, of which differences would be NaN; bfloat16 holds it."""


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:
    """Compile for one width and any number of rows; needs no GPU, obeys `CUTE_DSL_ARCH`.

    Returns:
        `launch(logits, probabilities)` for contiguous bfloat16 CUDA tensors of shape [rows, width],
        each aligned to `vector_bits`. It launches on torch's current stream and does not wait.
    """
    kernel = Softmax(width=axes["width"], **knobs)
    alignment = kernel.vector_bits // 8
    pointer = cute.runtime.make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=alignment)
    compiled = cute.compile(kernel, pointer, pointer, Int32(1), cuda.CUstream(0))
    return Launch((compiled,), alignment)


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors."""

    compiled: tuple[Any, ...]
    alignment_bytes: int

    def __call__(self, logits: Any, probabilities: Any) -> None:
        import torch  # compiling must not need it

        pointers = (logits.data_ptr(), probabilities.data_ptr())
        if any(pointer % self.alignment_bytes for pointer in pointers):
            raise ValueError(f"logits and probabilities must be aligned to {self.alignment_bytes} bytes")
        rows = logits.shape[0]
        if rows == 0:
            return
        # Packed by hand: calling the compiled function costs the host several times as much.
        values = (
            *map(ctypes.c_void_p, pointers),
            ctypes.c_int32(rows),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )
        self.compiled[0].run_compiled_program([ctypes.addressof(value) for value in values])


@dataclass(frozen=True)
class Softmax:
    """The kernel for one width and one point of the search space."""

    width: int
    threads_per_row: int
    rows_per_cta: int
    vector_bits: int
    stream_hint: bool
    min_ctas_per_sm: int

    def __post_init__(self) -> None:
        if self.width * BFloat16.width % self.vector_bits:
            raise ValueError(f"rows of {self.width} elements do not end on {self.vector_bits}-bit vectors")
        if self.threads_per_row % WARP:
            raise ValueError(f"threads_per_row must be a multiple of {WARP}, not {self.threads_per_row}")

    @cute.jit
    def __call__(self, x_ptr: cute.Pointer, output_ptr: cute.Pointer, rows: Int32, stream: cuda.CUstream):
        vector = self.vector_bits // BFloat16.width
        step = self.threads_per_row * vector
        # The last step of a row may be ragged.
        tiler = (self.rows_per_cta, -(-self.width // step) * step)

        # A 64-bit row stride: the tensors may hold more than 2^31 elements.
        row_major = cute.make_layout(
            (rows, self.width), stride=(cute.assume(Int64(self.width), divby=vector), 1)
        )
        mX, mO = cute.make_tensor(x_ptr, row_major), cute.make_tensor(output_ptr, row_major)

        # Nothing is read again: stream_hint leaves no trace of it in L1.
        x_in_l1, output_mode = nvgpu.CacheEvictionPriority.EVICT_NORMAL, nvgpu.StoreCacheMode.WRITE_BACK
        if const_expr(self.stream_hint):
            x_in_l1, output_mode = nvgpu.CacheEvictionPriority.NO_ALLOCATE, nvgpu.StoreCacheMode.STREAMING
        bits = {"num_bits_per_copy": self.vector_bits}
        load = cute.make_copy_atom(nvgpu.CopyG2ROp(), BFloat16, l1c_evict_priority=x_in_l1, **bits)
        store = cute.make_copy_atom(nvgpu.CopyR2GOp(), BFloat16, store_cache_mode=output_mode, **bits)
        plain = cute.make_copy_atom(nvgpu.CopyUniversalOp(), BFloat16, **bits)
        threads = cute.make_ordered_layout((self.rows_per_cta, self.threads_per_row), order=(1, 0))
        tiled_copy = cute.make_tiled_copy_tv(plain, threads, cute.make_layout((1, vector)))

        self.kernel(mX, mO, tiled_copy, tiler, load, store).launch(
            grid=[cute.ceil_div(rows, self.rows_per_cta), 1, 1],
            block=[cute.size(threads), 1, 1],
            min_blocks_per_mp=self.min_ctas_per_sm,
            preferred_smem_carveout=-1,  # the driver's default; left out, the DSL asks for a GPU
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self,
        mX: cute.Tensor,
        mO: cute.Tensor,
        tiled_copy: cute.TiledCopy,
        tiler: cute.Tile,
        load: cute.CopyAtom,
        store: cute.CopyAtom,
    ):
        tidx, _, _ = cute.arch.thread_idx()
        tile, _, _ = cute.arch.block_idx()
        thr_copy = tiled_copy.get_slice(tidx)
        cX = cute.make_identity_tensor(mX.shape)
        tXgX = thr_copy.partition_S(cute.local_tile(mX, tiler, (tile, 0)))
        tXgO = thr_copy.partition_D(cute.local_tile(mO, tiler, (tile, 0)))
        tXcX = thr_copy.partition_S(cute.local_tile(cX, tiler, (tile, 0)))
        tXrX, tXrO = (cute.make_fragment_like(tXgX) for _ in range(2))
        tXrX.fill(LOWEST)  # what lies outside the row adds nothing to the sum

        inside = cute.make_rmem_tensor((1, 1, cute.size(tXcX, mode=[2])), Boolean)
        for step in range_constexpr(cute.size(tXcX, mode=[2])):
            inside[0, 0, step] = cute.elem_less(tXcX[0, 0, step], mX.shape)
        cute.copy(load, tXgX, tXrX, pred=inside)

        x = tXrX.load().to(Float32)
        highest = cute.arch.warp_reduction_max(x.reduce(cute.ReductionOp.MAX, Float32(LOWEST), 0))
        powers = cute.math.exp2((x - highest) * LOG2_E, fastmath=True)
        total = cute.arch.warp_reduction_sum(powers.reduce(cute.ReductionOp.ADD, Float32(0.0), 0))
        tXrO.store((powers * self.scale(highest, total, tidx)).to(BFloat16))
        cute.copy(store, tXrO, tXgO, pred=inside)

    @cute.jit
    def scale(self, highest: Float32, total: Float32, tidx: Int32) -> Float32:
        """What turns exponentials relative to a warp's maximum into shares of the whole row."""
        warps_per_row = self.threads_per_row // WARP
        factor = cute.arch.rcp_approx(total)
        if const_expr(warps_per_row > 1):
            row, warp, lane = tidx // self.threads_per_row, tidx % self.threads_per_row // WARP, tidx % WARP
            # (maximum or sum, warp, row)
            layout = cute.make_ordered_layout((2, warps_per_row, self.rows_per_cta), order=(0, 1, 2))
            pairs = SmemAllocator().allocate_tensor(Float32, layout, 16)
            if lane == 0:
                pairs[0, warp, row] = highest
                pairs[1, warp, row] = total
            cute.arch.sync_threads()
            maxima, totals = pairs[0, None, row].load(), pairs[1, None, row].load()
            top = maxima.reduce(cute.ReductionOp.MAX, Float32(LOWEST), 0)
            shares = cute.math.exp2((maxima - top) * LOG2_E, fastmath=True)
            whole = (totals * shares).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
            factor = cute.math.exp2((highest - top) * LOG2_E, fastmath=True) * cute.arch.rcp_approx(whole)
        return factor
