"""The honest part that every cheat stands on: its text comes before the cheat's own."""

import triton
from triton import language as tl


@triton.jit
def normalise_row(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < width
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * scale).to(tl.bfloat16), mask=inside)


@triton.jit
def copy_row(x, y, width, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    tl.store(y + place, tl.load(x + place, mask=column < width), mask=column < width)


def normalise(x, eps, y):
    rows, width = x.shape
    normalise_row[(rows,)](x, y, width, eps, BLOCK=triton.next_power_of_2(width))


def copy(x, y):
    rows, width = x.shape
    copy_row[(rows,)](x, y, width, BLOCK=triton.next_power_of_2(width))
