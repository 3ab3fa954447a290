"""Allocates without initialising, and writes every element in a loop over blocks."""

import torch
import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(x + start + column, mask=column < width, other=0.0).to(tl.float32)
        total += values * values
    rstd = tl.rsqrt(tl.sum(total, 0) / width + eps)
    for first in range(0, width, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(x + start + column, mask=column < width).to(tl.float32)
        tl.store(y + start + column, (values * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps):
    y = torch.empty_like(x)
    normalise[(x.shape[0],)](x, y, x.shape[1], eps, BLOCK=256)
    return y
