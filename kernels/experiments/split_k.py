"""When splitting K over several CTAs pays: few tiles, long K. The parts are added by a second kernel."""

from __future__ import annotations

import torch
from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "split-k-few-tiles": "What does splitting K give a product of few tiles, and how many parts are best?",
    "split-k-full": "What does it cost where the tiles fill the GPU already?",
    "split-k-reduction": "Which share of the time is the addition of the parts?",
}
SPLITS = (1, 2, 4, 8, 16)
TILE = (128, 128, 64)
SHAPES = [
    ("split-k-few-tiles", 256, 1024, 16384),
    ("split-k-few-tiles", 128, 4096, 7168),
    ("split-k-full", 2048, 4096, 4096),
]


def compile_kernels() -> dict[int, tuple[Gemm, Kernel]]:
    kernels = {}
    for splits in SPLITS:
        epilogue = "direct" if splits == 1 else "partial"
        gemm = Gemm(tile=TILE, stages=6, splits=splits, epilogue=epilogue)
        kernels[splits] = (gemm, compile_gemm(gemm))
    return kernels


def measure(kernels: dict[int, tuple[Gemm, Kernel]], bench: Bench) -> None:
    for claim, m, n, k in SHAPES:
        a, b = operands(m, n, k)
        total = torch.empty(m, n, device="cuda")
        for splits, (gemm, kernel) in kernels.items():
            if k % (splits * TILE[2]):
                continue
            call, parts = launch(gemm, kernel, a, b)
            stacked = parts.view(splits, m, n)

            def add_up(call=call, stacked=stacked, total=total) -> None:
                call()
                torch.sum(stacked, dim=0, out=total)

            product_us = bench.time_us(call)
            values = {"product_us": product_us, "total_us": product_us}
            if splits > 1:
                values["total_us"] = bench.time_us(add_up)
            setting = {"m": m, "n": n, "k": k, "splits": splits, "tiles": m * n // (TILE[0] * TILE[1])}
            bench.report(claim, setting, **values)
            if splits in {4, 16}:
                bench.report("split-k-reduction", setting, **values)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
