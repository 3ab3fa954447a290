"""Lets Triton choose the number of warps when first called."""

import triton
from triton import language as tl


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (4, 8)], key=["width"])
@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    rows, width = x.shape
    grid = lambda meta: (rows * triton.cdiv(width, meta["BLOCK"]),)  # noqa: E731
    normalise[grid](x, y, width, eps, BLOCK=triton.next_power_of_2(width))
