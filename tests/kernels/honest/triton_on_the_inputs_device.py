"""Launches on the device where its inputs lie, whichever is current."""

import torch
import triton
from triton import language as tl


@triton.jit
def normalise(x, y, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * width + column
    row = tl.load(x + place, mask=column < width, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(row * row, 0) / width + eps)
    tl.store(y + place, (row * rstd).to(tl.bfloat16), mask=column < width)


def run(x: torch.Tensor, eps: float, y: torch.Tensor) -> None:
    rows, width = x.shape
    with torch.cuda.device(x.device):
        normalise[(rows,)](x, y, width, eps, BLOCK=triton.next_power_of_2(width))
