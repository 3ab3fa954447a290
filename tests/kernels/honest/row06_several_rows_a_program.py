"""One program does the work of several rows, in every call."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, rows, width, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for i in tl.static_range(ROWS):
        row = tl.program_id(0) * ROWS + i
        inside = column < tl.where(row < rows, width, 0)
        values = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(values * values, 0) / width + eps)
        tl.store(y + row * width + column, (values * rstd).to(tl.bfloat16), mask=inside)


def run(x, eps, y):
    rows, width = x.shape
    normalise[(triton.cdiv(rows, 2),)](x, y, rows, width, eps, ROWS=2, BLOCK=triton.next_power_of_2(width))
