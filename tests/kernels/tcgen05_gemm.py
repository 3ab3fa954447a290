"""The smallest whole tcgen05 GEMM: one warp feeds and multiplies, four warps write back. Test input.

C = A B^T for A [m, k], B [n, k] in bfloat16 and C [m, n] in float32; m, n and k are multiples of the
tile. One stage of shared memory and no overlap: it is small to compile, not fast to run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.blackwell_helpers as blackwell
from cutlass import BFloat16, Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.utils import SmemAllocator

# No `from __future__ import annotations`: `cute.struct` reads its fields' types.
STATIC_AXES = ()
TILE_M, TILE_N, TILE_K, MMA_K = 128, 128, 64, 16
THREADS = 128
COLUMNS = TILE_N
"""Of tensor memory: one 32-bit column for each column of the accumulator."""


def build(axes: Mapping[str, int], knobs: Mapping[str, Any]) -> Callable[..., None]:  # noqa: ARG001
    """Compile for any multiple of the tile; `launch(a, b, c)` takes contiguous CUDA tensors."""
    operand = cute.runtime.make_ptr(BFloat16, 0, cute.AddressSpace.gmem, assumed_align=16)
    result = cute.runtime.make_ptr(Float32, 0, cute.AddressSpace.gmem, assumed_align=16)
    sizes = (Int32(TILE_M), Int32(TILE_N), Int32(TILE_K))
    return Launch((cute.compile(gemm, operand, operand, result, *sizes, cuda.CUstream(0)),))


@dataclass(frozen=True)
class Launch:
    """The compiled kernel as a function of torch tensors."""

    compiled: tuple[Any, ...]

    def __call__(self, a: Any, b: Any, c: Any) -> None:
        import torch

        def pointer(tensor: Any, dtype: Any) -> Any:
            return cute.runtime.make_ptr(dtype, tensor.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)

        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        sizes = (*map(Int32, c.shape), Int32(a.shape[1]))
        self.compiled[0](pointer(a, BFloat16), pointer(b, BFloat16), pointer(c, Float32), *sizes, stream)


@cute.struct
class Barriers:
    """What the warps agree through, in shared memory."""

    loaded: Int64
    multiplied: Int64
    tmem_address: Int32


@cute.jit
def gemm(
    a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32, stream: cuda.CUstream
):
    mA = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))
    mB = cute.make_tensor(b, cute.make_layout((n, k), stride=(k, 1)))
    mC = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))
    major = tcgen05.OperandMajorMode.K
    operation = tcgen05.MmaF16BF16Op(
        BFloat16, Float32, (TILE_M, TILE_N, MMA_K), tcgen05.CtaGroup.ONE,
        tcgen05.OperandSource.SMEM, major, major,
    )  # fmt: skip
    tiled_mma = cute.make_tiled_mma(operation)
    tile = (TILE_M, TILE_N, TILE_K)
    sA_layout = blackwell.make_smem_layout_a(tiled_mma, tile, BFloat16, 1)
    sB_layout = blackwell.make_smem_layout_b(tiled_mma, tile, BFloat16, 1)
    load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    atom_a, tma_a = cute.nvgpu.make_tiled_tma_atom_A(
        load, mA, cute.select(sA_layout, mode=[0, 1, 2]), tile, tiled_mma
    )
    atom_b, tma_b = cute.nvgpu.make_tiled_tma_atom_B(
        load, mB, cute.select(sB_layout, mode=[0, 1, 2]), tile, tiled_mma
    )
    gemm_kernel(tiled_mma, atom_a, tma_a, atom_b, tma_b, mC, sA_layout, sB_layout).launch(
        grid=(m // TILE_M, n // TILE_N, 1), block=(THREADS, 1, 1), stream=stream
    )


@cute.kernel
def gemm_kernel(  # noqa: PLR0915
    tiled_mma: cute.TiledMma,
    atom_a: cute.CopyAtom,
    mA: cute.Tensor,
    atom_b: cute.CopyAtom,
    mB: cute.Tensor,
    mC: cute.Tensor,
    sA_layout: cute.ComposedLayout,
    sB_layout: cute.ComposedLayout,
):
    tidx, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    tile_m, tile_n, _ = cute.arch.block_idx()

    smem = SmemAllocator()
    shared = smem.allocate(Barriers)
    sA = smem.allocate_tensor(BFloat16, sA_layout.outer, byte_alignment=128, swizzle=sA_layout.inner)
    sB = smem.allocate_tensor(BFloat16, sB_layout.outer, byte_alignment=128, swizzle=sB_layout.inner)

    tile = (TILE_M, TILE_N, TILE_K)
    coordinate = (tile_m, tile_n, None)
    thread_mma = tiled_mma.get_slice(0)
    tCgA = thread_mma.partition_A(cute.local_tile(mA, tile, coordinate, proj=(1, None, 1)))
    tCgB = thread_mma.partition_B(cute.local_tile(mB, tile, coordinate, proj=(None, 1, 1)))
    tCgC = thread_mma.partition_C(cute.local_tile(mC, tile, coordinate, proj=(1, 1, None)))
    tCrA, tCrB = tiled_mma.make_fragment_A(sA), tiled_mma.make_fragment_B(sB)
    one = cute.make_layout(1)
    tAsA, tAgA = cpasync.tma_partition(
        atom_a, 0, one, cute.group_modes(sA, 0, 3), cute.group_modes(tCgA, 0, 3)
    )
    tBsB, tBgB = cpasync.tma_partition(
        atom_b, 0, one, cute.group_modes(sB, 0, 3), cute.group_modes(tCgB, 0, 3)
    )

    if warp == 0:
        cute.arch.alloc_tmem(COLUMNS, shared.tmem_address.ptr)
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(shared.loaded.ptr, 1)
            cute.arch.mbarrier_init(shared.multiplied.ptr, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    tmem = cute.arch.retrieve_tmem_ptr(
        Float32, alignment=16, ptr_to_buffer_holding_addr=shared.tmem_address.ptr
    )
    accumulator = tiled_mma.make_fragment_C(tiled_mma.partition_shape_C((TILE_M, TILE_N)))
    tCtC = cute.make_tensor(tmem, accumulator.layout)

    tile_bytes = (TILE_M + TILE_N) * TILE_K * BFloat16.width // 8
    steps = cute.size(tAgA, mode=[1])
    if warp == 0:
        for step in cutlass.range(steps, unroll=1):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(shared.loaded.ptr, tile_bytes)
            cute.copy(atom_a, tAgA[None, step], tAsA[None, 0], tma_bar_ptr=shared.loaded.ptr)
            cute.copy(atom_b, tBgB[None, step], tBsB[None, 0], tma_bar_ptr=shared.loaded.ptr)
            cute.arch.mbarrier_wait(shared.loaded.ptr, step % 2)
            for block in cutlass.range_constexpr(TILE_K // MMA_K):
                at = (None, None, block, 0)
                cute.gemm(tiled_mma, tCtC, tCrA[at], tCrB[at], tCtC)
                tiled_mma.set(tcgen05.Field.ACCUMULATE, True)
            with cute.arch.elect_one():
                tcgen05.commit(shared.multiplied.ptr)
            cute.arch.mbarrier_wait(shared.multiplied.ptr, step % 2)
    cute.arch.sync_threads()

    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), Float32)
    part = (cute.make_layout(TILE_M), cute.make_layout(32))
    tCtC_parts = cute.zipped_divide(tCtC[(None, None), 0, 0], part)
    tCgC_parts = cute.zipped_divide(tCgC[(None, None), 0, 0], part)
    read = tcgen05.make_tmem_copy(atom, tCtC_parts[None, 0])
    thread_read = read.get_slice(tidx)
    tRtC, tRgC = thread_read.partition_S(tCtC_parts), thread_read.partition_D(tCgC_parts)
    for index in cutlass.range_constexpr(TILE_N // 32):
        tRrC = cute.make_rmem_tensor(tRgC[None, None, index].shape, Float32)
        cute.copy(read, tRtC[None, None, index], tRrC)
        cute.autovec_copy(tRrC, tRgC[None, None, index])
    cute.arch.sync_threads()
    if warp == 0:
        cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.dealloc_tmem(tmem, COLUMNS)
