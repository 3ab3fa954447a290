"""Derives the block from the arguments by a heuristic."""

import triton
from triton import language as tl


@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["width"])})
@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    normalise[(x.shape[0],)](x, y, x.shape[1], eps)
