"""Remembers by shape how to launch, and by nothing what came out."""

import functools

import triton
from triton import language as tl


@triton.jit
def normalise(x, y, rows, width, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    values = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(values * values, 1) / width + eps)
    tl.store(y + row * width + column, (values * rstd[:, None]).to(tl.bfloat16), mask=inside)


@functools.cache
def launch(rows: int, width: int) -> tuple[int, int, int]:
    block = triton.next_power_of_2(width)
    together = 4 if block <= 1024 else 1
    return triton.cdiv(rows, together), together, block


def run(x, eps, y):
    programs, together, block = launch(*x.shape)
    normalise[(programs,)](x, y, x.shape[0], x.shape[1], eps, ROWS=together, BLOCK=block)
