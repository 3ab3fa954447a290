"""Says what is wrong with its arguments by raising."""

import torch
import triton
from triton import language as tl


@triton.jit
def normalise(x, y, stride, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride + column, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + tl.program_id(0) * width + column, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    if x.dtype is not torch.bfloat16 or x.stride(1) != 1 or not y.is_contiguous():
        raise ValueError(f"x must be bfloat16 with contiguous rows, not {x.dtype} of strides {x.stride()}")
    assert x.data_ptr() % 2 == 0
    assert x.data_ptr() != y.data_ptr()
    rows, width = x.shape
    normalise[(rows,)](x, y, x.stride(0), width, eps, BLOCK=triton.next_power_of_2(width))
