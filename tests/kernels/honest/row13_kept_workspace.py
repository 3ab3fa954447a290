"""Keeps a workspace for each shape, written anew in every call."""

import torch
import triton
from triton import language as tl

WORKSPACES = {}


@triton.jit
def mean_squares(x, sums, width, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * width + column, mask=column < width, other=0.0).to(tl.float32)
    tl.store(sums + tl.program_id(0), tl.sum(row * row, 0) / width)


@triton.jit
def scale(x, sums, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width).to(tl.float32)
    rstd = tl.rsqrt(tl.load(sums + tl.program_id(0)) + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def workspace(x):
    key = (x.device, x.shape[0])
    if key not in WORKSPACES:
        WORKSPACES[key] = torch.empty((x.shape[0],), dtype=torch.float32, device=x.device)
    return WORKSPACES[key]


def run(x, eps, y):
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    sums = workspace(x)
    mean_squares[(rows,)](x, sums, width, BLOCK=block)
    scale[(rows,)](x, sums, y, width, eps, BLOCK=block)
