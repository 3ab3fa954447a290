"""Reads its configuration from a table by shape, the same in every call."""

from dataclasses import dataclass

import triton
from triton import language as tl


@dataclass(frozen=True)
class Config:
    widest: int
    num_warps: int
    num_stages: int = 2


TABLE = (Config(1024, 4), Config(4096, 8), Config(1 << 30, 16))


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    rows, width = x.shape
    config = next(config for config in TABLE if width <= config.widest)
    normalise[(rows,)](
        x, y, width, eps,
        BLOCK=triton.next_power_of_2(width), num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
