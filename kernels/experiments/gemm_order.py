"""In which order tiles should be computed, and what an incomplete last wave costs."""

from __future__ import annotations

from gemm_bench import RESIDENT, compare, compile_gemms
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "order-group": "What does walking tiles in bands of several rows give at 8192 x 8192 x 8192?",
    "order-group-large": "What does it give where A and B are large and K is short?",
    "order-group-long-k": "What does it give where K is long?",
    "wave-tail": "What does one tile more than there are SMs cost?",
}
GEMMS = [Gemm(group_m=group_m) for group_m in (1, 2, 4, 8, 16, 32)]


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms(GEMMS)


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    cases = [(gemm, RESIDENT) for gemm in GEMMS]
    compare(bench, "order-group", kernels, cases, (8192, 8192, 8192))
    compare(bench, "order-group-large", kernels, cases, (16384, 16384, 2048))
    compare(bench, "order-group-long-k", kernels, cases, (4096, 8192, 32768), rounds=4)
    # 11 x 12 tiles fill the 132 SMs once; 12 x 12 leave 12, 19 x 7 leave one for a second round.
    for tiles_m, tiles_n in ((11, 12), (19, 7), (12, 12), (22, 12)):
        compare(bench, "wave-tail", kernels, cases[:1], (128 * tiles_m, 256 * tiles_n, 4096))


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
