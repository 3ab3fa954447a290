"""Small kernels for mistakes that no page's own kernel has room for."""

import cuda.bindings.driver as cuda
import cutlass
from cutlass import cute

VALUES = 192


@cute.kernel
def fill_kernel(
    mY: cute.Tensor, first: cutlass.Int64, smem_bytes: cutlass.Constexpr, guarded: cutlass.Constexpr
):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    bdim, _, _ = cute.arch.block_dim()
    i = bidx * bdim + tidx
    value = cutlass.Float32(1.0)
    if cutlass.const_expr(smem_bytes > 0):
        smem = cutlass.memory.SmemAllocator()
        sY = smem.allocate_tensor(cutlass.Float32, cute.make_layout(smem_bytes // 4), byte_alignment=16)
        sY[tidx] = value
        cute.arch.sync_threads()
        value = sY[tidx]
    if cutlass.const_expr(guarded):
        if i < mY.shape[0]:
            mY[first + i] = value
    else:
        mY[first + i] = value


@cute.jit
def fill(
    mY: cute.Tensor,
    first: cutlass.Int64,
    grid: cutlass.Constexpr,
    block: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    smem_bytes: cutlass.Constexpr,
    guarded: cutlass.Constexpr,
    stream: cuda.CUstream,
):
    """Ones from `first` on."""
    fill_kernel(mY, first, smem_bytes, guarded).launch(
        grid=[*grid], block=[block, 1, 1], cluster=[cluster, 1, 1], stream=stream
    )


@cute.jit
def fill_at_run_time(mY: cute.Tensor, ctas: cutlass.Int32, threads: cutlass.Int32, stream: cuda.CUstream):
    """As `fill`, with a grid and a block that the compiler does not know."""
    fill_kernel(mY, cutlass.Int64(0), 0, True).launch(grid=[ctas, 1, 1], block=[threads, 1, 1], stream=stream)


@cute.kernel
def scratch_kernel(mY: cute.Tensor, index: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    sY = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256), byte_alignment=16)
    sY[tidx + index] = cutlass.Float32(1.0)
    cute.arch.sync_threads()
    mY[tidx] = sY[tidx + index]


@cute.jit
def scratch(mY: cute.Tensor, index: cutlass.Int32, stream: cuda.CUstream):
    scratch_kernel(mY, index).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def hungry_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    sums = cute.make_rmem_tensor((VALUES,), cutlass.Float32)
    sums.fill(0.0)
    for row in cutlass.range(mX.shape[0], unroll=1):
        for v in cutlass.range_constexpr(VALUES):
            sums[v] += mX[row, v] * mX[row, tidx]
    for v in cutlass.range_constexpr(VALUES):
        mY[tidx, v] = sums[v]


@cute.jit
def hungry(mX: cute.Tensor, mY: cute.Tensor, threads: cutlass.Int32, stream: cuda.CUstream):
    """More than 200 registers a thread; the compiler does not know how many threads there will be."""
    hungry_kernel(mX, mY).launch(grid=[1, 1, 1], block=[threads, 1, 1], stream=stream)


@cute.kernel
def meet_kernel(mY: cute.Tensor, barrier_id: cutlass.Int32, second_id: cutlass.Int32):
    tidx, _, _ = cute.arch.thread_idx()
    mine = barrier_id
    if tidx >= 64:
        mine = second_id
    cute.arch.barrier(barrier_id=mine, number_of_threads=128)
    mY[tidx] = cutlass.Float32(1.0)


@cute.jit
def meet(mY: cute.Tensor, barrier_id: cutlass.Int32, second_id: cutlass.Int32, stream: cuda.CUstream):
    """Two halves of a CTA meet at named barriers of 128 threads."""
    meet_kernel(mY, barrier_id, second_id).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def branch_kernel(mY: cute.Tensor, others_leave: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    if tidx < 32:
        cute.arch.sync_threads()
        mY[tidx] = cutlass.Float32(1.0)
    else:
        mY[tidx] = cutlass.Float32(1.0)
        if cutlass.const_expr(not others_leave):
            cute.arch.sync_threads()


@cute.jit
def branch(mY: cute.Tensor, others_leave: cutlass.Constexpr, stream: cuda.CUstream):
    """One warp waits for the CTA; the others do, or leave."""
    branch_kernel(mY, others_leave).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def early_leavers_kernel(mY: cute.Tensor, arrivals: cutlass.Constexpr, initialised: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    done = smem.allocate_array(cutlass.Int64, 1)
    if cutlass.const_expr(initialised):
        if tidx == 0:
            cute.arch.mbarrier_init(done, arrivals)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    mY[tidx] = cutlass.Float32(1.0)
    if tidx < 96:
        cute.arch.mbarrier_arrive(done)
        cute.arch.mbarrier_wait(done, 0)


@cute.jit
def early_leavers(
    mY: cute.Tensor, arrivals: cutlass.Constexpr, initialised: cutlass.Constexpr, stream: cuda.CUstream
):
    """96 of 128 threads arrive at an mbarrier and wait for it."""
    early_leavers_kernel(mY, arrivals, initialised).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def progress_kernel(mProgress: cute.Tensor, arrivals: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    smem = cutlass.memory.SmemAllocator()
    done = smem.allocate_array(cutlass.Int64, 1)
    if tidx == 0:
        cute.arch.mbarrier_init(done, arrivals)
        cute.printf("before the barrier")
        mProgress[0] = cutlass.Float32(1.0)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    cute.arch.mbarrier_arrive(done)
    cute.arch.mbarrier_wait(done, 0)
    if tidx == 0:
        mProgress[1] = cutlass.Float32(1.0)


@cute.jit
def progress(mProgress: cute.Tensor, arrivals: cutlass.Constexpr, stream: cuda.CUstream):
    """128 threads meet; what is before and after the meeting is written down."""
    progress_kernel(mProgress, arrivals).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def all_meet_kernel(mCount: cute.Tensor, mY: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    if tidx == 0:
        seen = cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1)) + 1
        while seen < ctas:
            seen = cute.arch.atomic_add(mCount.iterator, cutlass.Int32(0))
    cute.arch.sync_threads()
    if tidx == 0:
        mY[bidx] = cutlass.Float32(1.0)


@cute.jit
def all_meet(mCount: cute.Tensor, mY: cute.Tensor, ctas: cutlass.Int32, stream: cuda.CUstream):
    """A barrier across all CTAs of 1,024 threads."""
    all_meet_kernel(mCount, mY).launch(grid=[ctas, 1, 1], block=[1024, 1, 1], stream=stream)


@cute.kernel
def count_kernel(mCount: cute.Tensor, atomic: cutlass.Constexpr):
    if cutlass.const_expr(atomic):
        cute.arch.atomic_add(mCount.iterator, cutlass.Int32(1))
    else:
        mCount[0] = mCount[0] + 1


@cute.jit
def count(mCount: cute.Tensor, atomic: cutlass.Constexpr, stream: cuda.CUstream):
    count_kernel(mCount, atomic).launch(grid=[64, 1, 1], block=[128, 1, 1], stream=stream)


@cute.kernel
def halve_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    mY[bidx, tidx] = (mX[bidx, tidx].to(cutlass.Float32) * 0.5).to(mY.element_type)


@cute.jit
def halve(mX: cute.Tensor, mY: cute.Tensor, stream: cuda.CUstream):
    """For matrices of 128 columns."""
    halve_kernel(mX, mY).launch(grid=[mX.shape[0], 1, 1], block=[128, 1, 1], stream=stream)
