"""How many stages a warp-specialised bfloat16 GEMM needs, and what its parts are worth."""

from __future__ import annotations

from dataclasses import replace

from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "gemm-stages": "How many stages does a 128 x 128 x 64 bfloat16 GEMM need?",
    "gemm-in-flight": "Does leaving a group of products in flight while the next tile is awaited pay?",
    "gemm-epilogue": "Does writing C through shared memory and TMA beat stores from registers?",
    "gemm-registers": "What does reallocating registers give a GEMM of 128 x 256 tiles?",
    "gemm-tile": "Which tile is fastest at 8192 x 8192 x 8192?",
    "gemm-persistent": "Does a persistent kernel beat one CTA per tile?",
    "gemm-cublas": "Which share of cuBLAS's speed does the best of these kernels reach?",
}
WIDE = Gemm(group_m=8)
SQUARE = Gemm(tile=(128, 128, 64), stages=6, group_m=8)
STAGES = {stages: replace(SQUARE, stages=stages) for stages in (2, 3, 4, 5, 6)}
CASES = [
    *(("gemm-stages", gemm, 132) for gemm in STAGES.values()),
    *(("gemm-stages", replace(WIDE, stages=stages), 132) for stages in (2, 3, 4)),
    *(("gemm-in-flight", replace(WIDE, in_flight=in_flight), 132) for in_flight in (0, 1)),
    *(("gemm-epilogue", replace(WIDE, epilogue=epilogue), 132) for epilogue in ("tma", "direct")),
    *(
        ("gemm-registers", replace(WIDE, registers=registers), 132)
        for registers in ((40, 232), (24, 240), None)
    ),
    *(("gemm-tile", gemm, 132) for gemm in (WIDE, SQUARE, Gemm(tile=(128, 192, 64), stages=5, group_m=8))),
    *(("gemm-tile", replace(SQUARE, tile=(128, 64, 64), stages=8), 132),),
    *(("gemm-persistent", WIDE, ctas) for ctas in (132, 0)),
    *(("gemm-persistent", replace(SQUARE, stages=3), ctas) for ctas in (132, 0)),
]
SIZES = {"gemm-epilogue": ((8192, 8192, 8192), (8192, 8192, 512))}


def compile_kernels() -> dict[Gemm, Kernel]:
    return {gemm: compile_gemm(gemm) for gemm in {gemm for _, gemm, _ in CASES}}


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    import torch

    best = 0.0
    for claim, gemm, ctas in CASES:
        for m, columns, k in SIZES.get(claim, ((8192, 8192, 8192),)):
            n = columns // gemm.tile[1] * gemm.tile[1]
            a, b = operands(m, n, k)
            call, _ = launch(gemm, kernels[gemm], a, b, ctas)
            samples = bench.time_us(call, iterations=10)
            tflops = [2 * m * n * k / us / 1e6 for us in samples]
            best = max(best, sorted(tflops)[len(tflops) // 2])
            setting = {
                "m": m, "n": n, "k": k, "tile": gemm.tile, "stages": gemm.stages, "in_flight": gemm.in_flight,
                "epilogue": gemm.epilogue, "registers": gemm.registers, "ctas": ctas or "one per tile",
            }  # fmt: skip
            bench.report(claim, setting, tflops=tflops)
    a, b = operands(8192, 8192, 8192)
    out = torch.empty(8192, 8192, dtype=torch.bfloat16, device="cuda")
    samples = bench.time_us(lambda: torch.matmul(a, b.T, out=out), iterations=10)
    cublas = [2 * 8192**3 / us / 1e6 for us in samples]
    bench.report("gemm-cublas", {"m": 8192, "n": 8192, "k": 8192}, cublas_tflops=cublas, best_own_tflops=best)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
