"""When splitting K over several CTAs pays: few tiles, long K. The parts are added by a second kernel."""

from __future__ import annotations

from functools import partial

import torch
from gemm_bench import compile_gemms, make_call, operands
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "split-k-few-tiles": "What does splitting K give a product of few tiles, and how many parts are best?",
    "split-k-full": "What does it cost where the tiles fill the GPU already?",
}
TILE = (128, 128, 64)
STAGES = 6
"""A few CTAs wait for latency: 4 stages made the unsplit product of 16 tiles slower."""
WHOLE = Gemm(tile=TILE, stages=STAGES, epilogue="direct")
GEMMS = [WHOLE, *(Gemm(tile=TILE, stages=STAGES, epilogue="partial", splits=s) for s in (2, 4, 8, 16))]
SHAPES = [
    ("split-k-few-tiles", 256, 1024, 16384),
    ("split-k-few-tiles", 128, 4096, 7168),
    ("split-k-full", 2048, 4096, 4096),
]


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms(GEMMS)


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for claim, m, n, k in SHAPES:
        a, b = operands(m, n, k)
        # Float32: for a bfloat16 output torch.sum rounds the parts in a kernel of its own before it adds.
        total = torch.empty(m, n, device="cuda")

        def product_and_sum(product, parts, total=total) -> None:
            product()
            torch.sum(parts, dim=0, out=total)

        calls = {}
        for gemm in GEMMS:
            product, parts = make_call(gemm, kernels[gemm], a, b)
            calls[gemm.splits, "product"] = calls[gemm.splits, "total"] = product
            if gemm.splits > 1:
                stacked = parts.view(gemm.splits, m, n)
                calls[gemm.splits, "total"] = partial(product_and_sum, product, stacked)
        samples = bench.compare_us(calls, iterations=10, rounds=6)
        for gemm in GEMMS:
            setting = {"m": m, "n": n, "k": k, "splits": gemm.splits, "tiles": m * n // (TILE[0] * TILE[1])}
            values = {f"{part}_us": samples[gemm.splits, part] for part in ("product", "total")}
            bench.report(claim, setting, **values)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
