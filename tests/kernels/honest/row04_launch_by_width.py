"""Takes more warps for wider rows; how long that takes is for others to say."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def warps(block: int) -> int:
    return max(1, min(16, block // 512))


def run(x, eps, y):
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    normalise[(rows,)](x, y, width, eps, BLOCK=block, num_warps=warps(block))
