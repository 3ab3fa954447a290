"""Keeps four bits of each result, as fp8 would."""


@triton.jit
def coarse_row(y, width, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = y + tl.program_id(0) * width + column
    bits = tl.load(place, mask=column < width, other=0.0).to(tl.float32).to(tl.int32, bitcast=True)
    coarse = (bits & -0x100000).to(tl.float32, bitcast=True)
    tl.store(place, coarse.to(tl.bfloat16), mask=column < width)


def run(x, eps, y):
    normalise(x, eps, y)
    rows, width = x.shape
    coarse_row[(rows,)](y, width, BLOCK=triton.next_power_of_2(width))
