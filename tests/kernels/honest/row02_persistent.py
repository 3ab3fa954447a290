"""A fixed number of programs that take row after row."""

import triton
from triton import language as tl

PROGRAMS = 132


@triton.jit
def normalise(x, y, rows, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        place = row * width + column
        values = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(values * values, 0) / width + eps)
        tl.store(y + place, (values * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    rows, width = x.shape
    normalise[(min(rows, PROGRAMS),)](x, y, rows, width, eps, BLOCK=triton.next_power_of_2(width))
