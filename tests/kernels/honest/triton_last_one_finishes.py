"""Splits rows; of the programs of a row, the last to arrive scales it. Counters are left at zero."""

import torch
import triton
from triton import language as tl

STATE = {}


@triton.jit
def normalise(x, y, sums, arrived, width, eps, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * width + column, mask=column < width, other=0.0).to(tl.float32)
    tl.atomic_add(sums + row, tl.sum(values * values, 0))
    if tl.atomic_add(arrived + row, 1) == SPLIT - 1:
        rstd = tl.rsqrt(tl.atomic_add(sums + row, 0.0) / width + eps)
        for first in range(0, width, BLOCK):
            column = first + tl.arange(0, BLOCK)
            values = tl.load(x + row * width + column, mask=column < width).to(tl.float32)
            tl.store(y + row * width + column, (values * rstd).to(tl.bfloat16), mask=column < width)
        tl.store(sums + row, 0.0)
        tl.store(arrived + row, 0)


def run(x, eps, y):
    rows, width = x.shape
    if rows not in STATE:
        sums = torch.zeros(rows, dtype=torch.float32, device=x.device)
        STATE[rows] = sums, torch.zeros(rows, dtype=torch.int32, device=x.device)
    sums, arrived = STATE[rows]
    split = triton.cdiv(width, 1024)
    normalise[(rows, split)](x, y, sums, arrived, width, eps, SPLIT=split, BLOCK=1024)
