"""Tells the caches what is read again, within the kernel and for no longer."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * width
    total = 0.0
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        row = tl.load(x + start + column, mask=column < width, other=0.0, eviction_policy="evict_last")
        total += tl.sum(row.to(tl.float32) * row.to(tl.float32), 0)
    rstd = tl.rsqrt(total / width + eps)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        row = tl.load(x + start + column, mask=column < width, eviction_policy="evict_first").to(tl.float32)
        tl.store(y + start + column, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    normalise[(x.shape[0],)](x, y, x.shape[1], eps, BLOCK=512)
