"""What accumulating fp8 products in the tensor cores loses in accuracy, and what promotion costs in speed."""

from __future__ import annotations

from dataclasses import replace

import torch
from cutlass import Float8E4M3FN
from gemm_bench import RESIDENT, compare, compile_gemms, make_call
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "fp8-error": "How large is the error of fp8 accumulation without promotion, with terms of both signs?",
    "fp8-error-same-sign": "How large is it if all terms have one sign?",
    "fp8-error-promoted": "How much of it does promotion every 128 elements of K remove?",
    "fp8-error-interval": "Which error is left with longer intervals?",
    "fp8-promotion-cost": "How much slower does promotion make an fp8 GEMM, by its interval?",
    "fp8-against-bf16": "How much faster than bfloat16 is an fp8 GEMM as a whole?",
}
TILE, PROMOTE = (128, 128, 128), (0, 1, 2, 4)
FAST = [Gemm(tile=TILE, stages=4, dtype=Float8E4M3FN, promote=promote, group_m=16) for promote in PROMOTE]
EXACT = [replace(gemm, epilogue="partial", group_m=1) for gemm in FAST]
WIDE = Gemm(tile=(128, 256, 128), stages=4, dtype=Float8E4M3FN, group_m=16)
BF16 = Gemm(group_m=16)


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms([*FAST, *EXACT, WIDE, BF16])


def errors(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, float]:
    """Against float64 products of the same fp8 values: of the norm, and the largest against the rms value."""
    exact = a[:256].double() @ b.double().T
    wrong = product[:256].double() - exact
    rms = exact.square().mean().sqrt()
    return {
        "relative_l2": float(wrong.norm() / exact.norm()),
        "largest_error_over_rms": float(wrong.abs().max() / rms),
    }


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for signs in ("both", "one"):
        for k in (512, 4096, 16384):
            values = [torch.randn(1024, k, device="cuda") for _ in range(2)]
            a, b = ((x if signs == "both" else x.abs()).to(torch.float8_e4m3fn) for x in values)
            for gemm in EXACT:
                _, product = make_call(gemm, kernels[gemm], a, b, tolerance=1.0)  # the error is the question
                unpromoted = "fp8-error" if signs == "both" else "fp8-error-same-sign"
                claim = {0: unpromoted, 1: "fp8-error-promoted"}.get(gemm.promote, "fp8-error-interval")
                setting = {"k": k, "signs": signs, "promotion_every_k": gemm.promote * TILE[2]}
                bench.report(claim, setting, **errors(product, a, b))
    shape = (8192, 8192, 8192)
    compare(bench, "fp8-promotion-cost", kernels, [(gemm, RESIDENT) for gemm in (*FAST, WIDE)], shape)
    compare(bench, "fp8-against-bf16", kernels, [(WIDE, RESIDENT), (BF16, RESIDENT)], shape)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
