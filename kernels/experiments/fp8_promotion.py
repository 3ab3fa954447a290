"""What accumulating fp8 products in the tensor cores loses in accuracy, and what promotion costs in speed."""

from __future__ import annotations

import torch
from cutlass import Float8E4M3FN
from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "fp8-error": "How large is the error of fp8 accumulation without promotion, by K and signs of terms?",
    "fp8-error-promoted": "How much of it does promotion every 128 elements of K remove?",
    "fp8-promotion-cost": "How much slower does promotion make an fp8 GEMM?",
    "fp8-against-bf16": "How much faster than bfloat16 is an fp8 GEMM as a whole?",
    "fp8-promotion-interval": "Do longer intervals than 128 elements win time back, and at which error?",
}
TILE, STAGES = (128, 128, 128), 6
PROMOTE = (0, 1, 2, 4)


def compile_kernels() -> dict[object, tuple[Gemm, Kernel]]:
    gemms: dict[object, Gemm] = {
        promote: Gemm(tile=TILE, stages=STAGES, dtype=Float8E4M3FN, promote=promote, group_m=8)
        for promote in PROMOTE
    }
    gemms["wide"] = Gemm(tile=(128, 256, 128), stages=4, dtype=Float8E4M3FN, group_m=8)
    gemms["bf16"] = Gemm(group_m=8)
    gemms |= {
        f"float32 {promote}": Gemm(
            tile=TILE, stages=STAGES, dtype=Float8E4M3FN, promote=promote, epilogue="partial"
        )
        for promote in PROMOTE
    }
    return {name: (gemm, compile_gemm(gemm)) for name, gemm in gemms.items()}


def errors(product: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, float]:
    """Against float64 products of the same fp8 values: of the norm, and the largest against the rms value."""
    exact = a[:256].double() @ b.double().T
    wrong = product[:256].double() - exact
    rms = exact.square().mean().sqrt()
    return {
        "relative_l2": float(wrong.norm() / exact.norm()),
        "largest_error_over_rms": float(wrong.abs().max() / rms),
    }


def measure(kernels: dict[object, tuple[Gemm, Kernel]], bench: Bench) -> None:
    for signs in ("mixed", "same"):
        for k in (512, 4096, 16384):
            a, b = (
                (x if signs == "mixed" else x.abs()).to(torch.float8_e4m3fn)
                for x in (torch.randn(1024, k, device="cuda") for _ in range(2))
            )
            for promote in PROMOTE:
                gemm, kernel = kernels[f"float32 {promote}"]
                _, product = launch(gemm, kernel, a, b, tolerance=0.2)  # the error is the question
                claim = {0: "fp8-error", 1: "fp8-error-promoted"}.get(promote, "fp8-promotion-interval")
                setting = {
                    "k": k,
                    "signs": signs,
                    "promotion_every_k": promote * TILE[2],
                    "m": 1024,
                    "n": 1024,
                }
                bench.report(claim, setting, **errors(product, a, b))

    size = 8192
    for name, claims in (
        (0, ("fp8-promotion-cost", "fp8-promotion-interval")),
        (1, ("fp8-promotion-cost", "fp8-promotion-interval")),
        (2, ("fp8-promotion-interval",)),
        (4, ("fp8-promotion-interval",)),
        ("wide", ("fp8-promotion-cost", "fp8-against-bf16")),
        ("bf16", ("fp8-against-bf16",)),
    ):
        gemm, kernel = kernels[name]
        a, b = operands(size, size, size, gemm.dtype)
        call, _ = launch(gemm, kernel, a, b)
        tflops = [2 * size**3 / us / 1e6 for us in bench.time_us(call, iterations=12)]
        setting = {"size": size, "tile": gemm.tile, "stages": gemm.stages, "dtype": gemm.dtype.__name__}
        for claim in claims:
            bench.report(claim, setting | {"promotion_every_k": gemm.promote * gemm.tile[2]}, tflops=tflops)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
