"""Two launches: mean squares into a workspace of its own, then the scaling."""

import cuda.bindings.driver as cuda
import torch
from cutlass import BFloat16, Float32, Int32, cute

STATIC_AXES = ("width",)


@cute.kernel
def mean_squares(mX: cute.Tensor, mS: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    width = cute.size(mX, mode=[1])
    total = Float32(0.0)
    for column in range(lane, width, 32):
        value = mX[row, column].to(Float32)
        total += value * value
    total = cute.arch.warp_reduction_sum(total)
    if lane == 0:
        mS[row] = total / width


@cute.kernel
def scale(mX: cute.Tensor, mS: cute.Tensor, mY: cute.Tensor, eps: Float32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    rstd = cute.math.rsqrt(mS[row] + eps)
    for column in range(thread, cute.size(mX, mode=[1]), 128):
        mY[row, column] = (mX[row, column].to(Float32) * rstd).to(BFloat16)


class Norm:
    def __init__(self, width: int):
        self.width = width

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        sums: cute.Pointer,
        y: cute.Pointer,
        rows: Int32,
        eps: Float32,
        stream: cuda.CUstream,
    ):
        layout = cute.make_layout((rows, self.width), stride=(self.width, 1))
        mX, mY = cute.make_tensor(x, layout), cute.make_tensor(y, layout)
        mS = cute.make_tensor(sums, cute.make_layout(rows))
        common = {"grid": [rows, 1, 1], "preferred_smem_carveout": -1, "stream": stream}
        mean_squares(mX, mS).launch(block=[32, 1, 1], **common)
        scale(mX, mS, mY, eps).launch(block=[128, 1, 1], **common)


def pointer(address: int, dtype=BFloat16):
    return cute.runtime.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=dtype.width // 8)


class Launch:
    def __init__(self, compiled):
        self.compiled = (compiled,)

    def __call__(self, x, eps, y):
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        sums = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        self.compiled[0](
            pointer(x.data_ptr()),
            pointer(sums.data_ptr(), Float32),
            pointer(y.data_ptr()),
            x.shape[0],
            eps,
            stream,
        )


def build(axes, knobs):
    del knobs
    fake, fake_sums = pointer(0), pointer(0, Float32)
    return Launch(
        cute.compile(Norm(axes["width"]), fake, fake_sums, fake, Int32(1), Float32(1e-6), cuda.CUstream(0))
    )
