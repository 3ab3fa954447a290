"""Strides and widths as they come."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, x_stride, y_stride, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + column, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(values * values, 0) / width + eps)
    tl.store(y + row * y_stride + column, (values * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    x, y = x.view(-1, x.shape[-1]), y.view(-1, y.shape[-1])
    block = triton.next_power_of_2(x.shape[1])
    normalise[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], eps, BLOCK=block)
