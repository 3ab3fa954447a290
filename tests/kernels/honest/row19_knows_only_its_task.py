"""Everything that it knows stands in its text."""

import enum
import math

import triton
from triton import language as tl


class Shape(enum.Enum):
    SHORT = 256
    LONG = 2048


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    start = tl.program_id(0) * width
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(STEPS):
        column = step * BLOCK + tl.arange(0, BLOCK)
        row = tl.load(x + start + column, mask=column < width, other=0.0).to(tl.float32)
        total += row * row
    rstd = tl.rsqrt(tl.sum(total, 0) / width + eps)
    for step in tl.static_range(STEPS):
        column = step * BLOCK + tl.arange(0, BLOCK)
        row = tl.load(x + start + column, mask=column < width).to(tl.float32)
        tl.store(y + start + column, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    rows, width = x.shape
    block = (Shape.SHORT if width <= 1024 else Shape.LONG).value
    normalise[(rows,)](x, y, width, eps, BLOCK=block, STEPS=math.ceil(width / block))
