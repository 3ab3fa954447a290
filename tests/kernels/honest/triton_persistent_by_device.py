"""As many programs as the device has multiprocessors."""

import functools

import torch
import triton
from triton import language as tl


@triton.jit
def normalise(x, y, rows, width, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        values = tl.load(x + row * width + column, mask=column < width, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(values * values, 0) / width + eps)
        tl.store(y + row * width + column, (values * rstd).to(tl.bfloat16), mask=column < width)


@functools.cache
def multiprocessors(device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def run(x, eps, y):
    rows, width = x.shape
    programs = min(rows, multiprocessors(x.device))
    normalise[(programs,)](x, y, rows, width, eps, BLOCK=triton.next_power_of_2(width))
