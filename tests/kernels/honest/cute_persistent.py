"""A fixed number of warps that take row after row."""

import cuda.bindings.driver as cuda
import torch
from cutlass import BFloat16, Float32, Int32, cute

STATIC_AXES = ("width",)
WARPS = 264


@cute.kernel
def normalise(mX: cute.Tensor, mY: cute.Tensor, eps: Float32):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    programs, _, _ = cute.arch.grid_dim()
    rows = cute.size(mX, mode=[0])
    width = cute.size(mX, mode=[1])
    while row < rows:
        total = Float32(0.0)
        for column in range(lane, width, 32):
            value = mX[row, column].to(Float32)
            total += value * value
        rstd = cute.math.rsqrt(cute.arch.warp_reduction_sum(total) / width + eps)
        for column in range(lane, width, 32):
            mY[row, column] = (mX[row, column].to(Float32) * rstd).to(BFloat16)
        row += programs


class Norm:
    def __init__(self, width: int):
        self.width = width

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, rows: Int32, eps: Float32, stream: cuda.CUstream):
        layout = cute.make_layout((rows, self.width), stride=(self.width, 1))
        normalise(cute.make_tensor(x, layout), cute.make_tensor(y, layout), eps).launch(
            grid=[WARPS, 1, 1], block=[32, 1, 1], preferred_smem_carveout=-1, stream=stream
        )


def pointer(address: int):
    return cute.runtime.make_ptr(BFloat16, address, cute.AddressSpace.gmem, assumed_align=2)


class Launch:
    def __init__(self, compiled):
        self.compiled = (compiled,)

    def __call__(self, x, eps, y):
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        self.compiled[0](pointer(x.data_ptr()), pointer(y.data_ptr()), x.shape[0], eps, stream)


def build(axes, knobs):
    del knobs
    fake = pointer(0)
    return Launch(cute.compile(Norm(axes["width"]), fake, fake, Int32(1), Float32(1e-6), cuda.CUstream(0)))
