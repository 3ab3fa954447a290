"""How often a softmax should read its row: in three passes, in two with the online rule, or once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import BFloat16, Float32, Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "softmax-short-rows": "Does the online rule beat three passes where a row stays in L1?",
    "softmax-long-rows": "Does it where the rows in work overflow the L2?",
    "softmax-registers": "What does keeping the row in registers give over reading it twice?",
    "softmax-vector-online": "What does updating the maximum once per vector instead of per element give?",
}
THREADS, VECTOR, LOG2_E = 256, 8, 1.4426950408889634
WARPS = THREADS // 32


@cute.jit
def over_cta(value: Float32, slots: cute.Tensor, op: cutlass.Constexpr) -> Float32:
    """Maximum or sum over the CTA, for every thread."""
    tidx, _, _ = cute.arch.thread_idx()
    best = cutlass.const_expr(op == "max")
    value = cute.arch.warp_reduction_max(value) if best else cute.arch.warp_reduction_sum(value)
    if tidx % 32 == 0:
        slots[tidx // 32] = value
    cute.arch.sync_threads()
    result = slots.load().reduce(
        cute.ReductionOp.MAX if best else cute.ReductionOp.ADD, -Float32.inf if best else Float32(0.0), 0
    )
    cute.arch.sync_threads()
    return result


@cute.jit
def exp2(x: Float32) -> Float32:
    return cute.math.exp2(x, fastmath=True)


@dataclass(frozen=True)
class Softmax:
    """Rows of `columns` bfloat16; a CTA per row."""

    style: str
    columns: int

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, rows: Int32, stream: cuda.CUstream):
        layout = cute.make_layout((rows, self.columns), stride=(self.columns, 1))
        self.kernel(cute.make_tensor(x, layout), cute.make_tensor(y, layout)).launch(
            grid=[rows, 1, 1], block=[THREADS, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, mX: cute.Tensor, mY: cute.Tensor):  # noqa: PLR0912
        tidx, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        slots = cutlass.memory.SmemAllocator().allocate_tensor(Float32, cute.make_layout(WARPS), 16)
        gX = cute.zipped_divide(mX, (1, VECTOR))
        gY = cute.zipped_divide(mY, (1, VECTOR))
        turns = self.columns // (THREADS * VECTOR)
        best, total = -Float32.inf, Float32(0.0)
        if cutlass.const_expr(self.style == "registers"):
            kept = [gX[(0, None), (row, i * THREADS + tidx)].load().to(Float32) for i in range(turns)]
            for x in kept:
                best = cute.arch.fmax(best, x.reduce(cute.ReductionOp.MAX, -Float32.inf, 0))
            best = over_cta(best, slots, "max") * LOG2_E
            powers = [cute.math.exp2(x * LOG2_E - best, fastmath=True) for x in kept]
            for p in powers:
                total += p.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
            scale = 1.0 / over_cta(total, slots, "sum")
            for i, p in enumerate(powers):
                gY[(0, None), (row, i * THREADS + tidx)] = (p * scale).to(BFloat16)
        else:
            if cutlass.const_expr(self.style == "three passes"):
                for i in cutlass.range(turns, unroll=4):
                    x = gX[(0, None), (row, i * THREADS + tidx)].load().to(Float32)
                    best = cute.arch.fmax(best, x.reduce(cute.ReductionOp.MAX, -Float32.inf, 0))
                best = over_cta(best, slots, "max")
                for i in cutlass.range(turns, unroll=4):
                    x = gX[(0, None), (row, i * THREADS + tidx)].load().to(Float32)
                    p = cute.math.exp2(x * LOG2_E - best * LOG2_E, fastmath=True)
                    total += p.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
            else:
                for i in cutlass.range(turns, unroll=4):
                    x = gX[(0, None), (row, i * THREADS + tidx)].load().to(Float32)
                    if cutlass.const_expr(self.style == "online by vector"):
                        new = cute.arch.fmax(best, x.reduce(cute.ReductionOp.MAX, -Float32.inf, 0))
                        p = cute.math.exp2(x * LOG2_E - new * LOG2_E, fastmath=True)
                        total = total * exp2((best - new) * LOG2_E) + p.reduce(
                            cute.ReductionOp.ADD, Float32(0.0), 0
                        )
                        best = new
                    else:
                        for v in cutlass.range_constexpr(VECTOR):
                            new = cute.arch.fmax(best, x[v])
                            total = total * exp2((best - new) * LOG2_E) + exp2((x[v] - new) * LOG2_E)
                            best = new
                mine = best
                best = over_cta(best, slots, "max")
                total *= exp2((mine - best) * LOG2_E)
            scale = 1.0 / over_cta(total, slots, "sum")
            for i in cutlass.range(turns, unroll=4):
                at = ((0, None), (row, i * THREADS + tidx))
                x = gX[at].load().to(Float32)
                gY[at] = (cute.math.exp2(x * LOG2_E - best * LOG2_E, fastmath=True) * scale).to(BFloat16)


SHORT, LONG = 8192, 262144
CASES = [
    *(("softmax-short-rows", Softmax(style, SHORT), 8192) for style in ("three passes", "online by vector")),
    *(("softmax-long-rows", Softmax(style, LONG), 512) for style in ("three passes", "online by vector")),
    *(("softmax-registers", Softmax(style, SHORT), 8192) for style in ("registers", "online by vector")),
    *(
        ("softmax-vector-online", Softmax(style, SHORT), 8192)
        for style in ("online by element", "online by vector")
    ),
]


def compile_kernels() -> dict[Softmax, Kernel]:
    return {case: Kernel(case, BFloat16, BFloat16, 1) for case in {case for _, case, _ in CASES}}


def measure(kernels: dict[Softmax, Kernel], bench: Bench) -> None:
    for claim, case, rows in CASES:
        x = 4 * torch.randn(rows, case.columns, device="cuda").to(torch.bfloat16)
        y = torch.empty_like(x)
        call = partial(kernels[case], x, y, rows)
        call()
        few = slice(0, 64)
        if not torch.allclose(y[few].float(), torch.softmax(x[few].float(), -1), rtol=0.02, atol=1e-6):
            raise RuntimeError(f"{case}: wrong values; their times are worthless")
        samples = bench.time_us(call, iterations=15)
        bench.report(
            claim,
            {"style": case.style, "rows": rows, "columns": case.columns},
            kernel_us=samples,
            least_traffic_gbps=[2 * x.nbytes / us / 1e3 for us in samples],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
