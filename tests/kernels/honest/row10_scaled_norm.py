"""Takes the norm relative to the row's largest element, which no scale of the input upsets."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(row), 0), 1e-20)
    small = row / largest
    rstd = tl.rsqrt(tl.sum(small * small, 0) / width + eps / largest / largest)
    tl.store(y + place, (small * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    rows, width = x.shape
    normalise[(rows,)](x, y, width, eps, BLOCK=triton.next_power_of_2(width))
