"""What a layout that is known while compiling gives: wide accesses, short addresses, fewer registers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import BFloat16, Float32, Int32, Int64, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "layout-static": "How much slower is a row kernel whose row length is dynamic but divisible?",
    "layout-divisibility": "What does leaving out the divisibility cost?",
    "layout-int64": "What do 64-bit strides cost against 32-bit ones?",
    "layout-loop": "What does a loop over a dynamic row length cost against an unrolled one, data in L2?",
}
ROWS, COLUMNS, THREADS, VECTOR = 16384, 4096, 128, 8


@dataclass(frozen=True)
class ScaleRows:
    """y = 2 x, a CTA per row: the row length is static, divisible by the vector, or anything."""

    length: str
    stride: type = Int64

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, rows: Int32, columns: Int32, stream: cuda.CUstream):
        if cutlass.const_expr(self.length == "static"):
            columns, stride = COLUMNS, self.stride(COLUMNS)
            stride = cute.assume(stride, divby=VECTOR)
        elif cutlass.const_expr(self.length == "divisible"):
            columns = cute.assume(columns, divby=VECTOR)
            stride = cute.assume(self.stride(columns), divby=VECTOR)
        else:
            stride = self.stride(columns)
        layout = cute.make_layout((rows, columns), stride=(stride, 1))
        self.kernel(cute.make_tensor(x, layout), cute.make_tensor(y, layout)).launch(
            grid=[rows, 1, 1], block=[THREADS, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, mX: cute.Tensor, mY: cute.Tensor):
        tidx, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        gX, gY = cute.zipped_divide(mX, (1, VECTOR)), cute.zipped_divide(mY, (1, VECTOR))
        vectors = gX.shape[1][1]
        values = cute.make_rmem_tensor(VECTOR, BFloat16)
        for at in cutlass.range(tidx, vectors, THREADS, unroll=4):
            cute.autovec_copy(gX[(0, None), (row, at)], values)
            values.store((values.load().to(Float32) * 2.0).to(BFloat16))
            cute.autovec_copy(values, gY[(0, None), (row, at)])


CASES = {
    "static, 64-bit stride": ScaleRows("static"),
    "static, 32-bit stride": ScaleRows("static", Int32),
    "divisible, 64-bit stride": ScaleRows("divisible"),
    "divisible, 32-bit stride": ScaleRows("divisible", Int32),
    "anything, 64-bit stride": ScaleRows("anything"),
}


def compile_kernels() -> dict[str, Kernel]:
    return {name: Kernel(case, BFloat16, BFloat16, 1, 1) for name, case in CASES.items()}


def measure(kernels: dict[str, Kernel], bench: Bench) -> None:
    def report(claim: str, names: tuple[str, ...], rows: int, *, cold_l2: bool) -> None:
        x = torch.randn(rows, COLUMNS, device="cuda").to(torch.bfloat16)
        y = torch.empty_like(x)
        for name in names:
            call = partial(kernels[name], x, y, rows, COLUMNS)
            call()
            if not torch.equal(y, 2 * x):
                raise RuntimeError(f"{name}: wrong values; their times are worthless")
            setting = {"layout": name, "rows": rows, "columns": COLUMNS, "cold_l2": cold_l2}
            bench.report(claim, setting, kernel_us=bench.time_us(call, cold_l2=cold_l2))

    dynamic = ("static, 64-bit stride", "divisible, 64-bit stride")
    report("layout-static", dynamic, ROWS, cold_l2=True)
    report("layout-divisibility", (dynamic[1], "anything, 64-bit stride"), ROWS, cold_l2=True)
    report("layout-int64", ("divisible, 32-bit stride", dynamic[1]), ROWS, cold_l2=True)
    # 16 MiB read and written again and again: instructions count more when HBM does not.
    report("layout-loop", tuple(CASES), 1024, cold_l2=False)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
