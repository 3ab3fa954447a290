"""A launcher object that takes one path, whoever calls."""

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


class Launcher:
    def __init__(self) -> None:
        self.blocks = {}

    def block(self, width: int) -> int:
        if width not in self.blocks:
            self.blocks[width] = triton.next_power_of_2(width)
        return self.blocks[width]

    def __call__(self, x, eps, y):
        rows, width = x.shape
        normalise[(rows,)](x, y, width, eps, BLOCK=self.block(width))


run = Launcher()
