"""In which order tiles should be computed, and what an incomplete last wave costs."""

from __future__ import annotations

from dataclasses import replace

from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "order-group": "What does walking tiles in bands of several rows give, at 8192 and at 16384?",
    "order-group-long-k": "Does the order matter more when a row of A alone fills the L2?",
    "wave-tail": "What does one tile more than there are SMs cost?",
}
GROUPS = (1, 2, 4, 8, 16, 32)
GEMMS = {group_m: Gemm(group_m=group_m) for group_m in GROUPS}


def compile_kernels() -> dict[Gemm, Kernel]:
    return {gemm: compile_gemm(gemm) for gemm in GEMMS.values()}


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    def report(claim: str, gemm: Gemm, m: int, n: int, k: int, iterations: int = 8) -> None:
        a, b = operands(m, n, k)
        call, _ = launch(gemm, kernels[gemm], a, b)
        samples = bench.time_us(call, iterations=iterations)
        setting = {"m": m, "n": n, "k": k, "group_m": gemm.group_m, "tiles": m // 128 * (n // 256)}
        bench.report(claim, setting, tflops=[2 * m * n * k / us / 1e6 for us in samples], kernel_us=samples)

    for size in (8192, 16384):
        for gemm in GEMMS.values():
            report("order-group", gemm, size, size, size if size == 8192 else 2048)
    for group_m in (1, 8):
        report("order-group-long-k", GEMMS[group_m], 4096, 8192, 32768, iterations=4)
    # 11 x 12 tiles fill the 132 SMs once, 12 x 12 leave 12 tiles for a second round.
    for tiles_m, tiles_n in ((11, 12), (12, 12), (19, 7), (22, 12)):
        report("wave-tail", replace(GEMMS[1]), 128 * tiles_m, 256 * tiles_n, 4096)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
