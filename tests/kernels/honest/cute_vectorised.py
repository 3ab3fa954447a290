"""One warp a row, eight elements a load."""

import cuda.bindings.driver as cuda
import torch
from cutlass import BFloat16, Float32, Int32, cute

STATIC_AXES = ("width",)
VECTOR = 8


@cute.kernel
def normalise(mX: cute.Tensor, mY: cute.Tensor, eps: Float32):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    width = cute.size(mX, mode=[1])
    gX = cute.zipped_divide(mX[row, None], (VECTOR,))
    gY = cute.zipped_divide(mY[row, None], (VECTOR,))
    rX = cute.make_fragment_like(gX[None, 0])
    total = Float32(0.0)
    for vector in range(lane, width // VECTOR, 32):
        cute.autovec_copy(gX[None, vector], rX)
        values = rX.load().to(Float32)
        total += (values * values).reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    rstd = cute.math.rsqrt(cute.arch.warp_reduction_sum(total) / width + eps)
    for vector in range(lane, width // VECTOR, 32):
        cute.autovec_copy(gX[None, vector], rX)
        rX.store((rX.load().to(Float32) * rstd).to(BFloat16))
        cute.autovec_copy(rX, gY[None, vector])


class Norm:
    def __init__(self, width: int):
        self.width = width

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, rows: Int32, eps: Float32, stream: cuda.CUstream):
        layout = cute.make_layout((rows, self.width), stride=(cute.assume(self.width, divby=VECTOR), 1))
        normalise(cute.make_tensor(x, layout), cute.make_tensor(y, layout), eps).launch(
            grid=[rows, 1, 1], block=[32, 1, 1], preferred_smem_carveout=-1, stream=stream
        )


def pointer(address: int):
    return cute.runtime.make_ptr(BFloat16, address, cute.AddressSpace.gmem, assumed_align=16)


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
