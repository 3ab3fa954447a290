"""What TMA multicast gives a bfloat16 GEMM: CTAs of a cluster share tiles of A or B."""

from __future__ import annotations

from dataclasses import replace

from gemm_bench import RESIDENT, compare, compile_gemms
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "multicast-wide-tile": "What does multicast give a GEMM of 128 x 256 tiles?",
    "multicast-small-tile": "What does it give with tiles of 128 x 64, which load more bytes per product?",
    "multicast-four": "Are clusters of four better than clusters of two?",
    "multicast-residency": "What if a persistent grid has more clusters than the GPU holds at once?",
}
WIDE, SMALL = Gemm(group_m=16), Gemm(tile=(128, 64, 64), stages=6, group_m=16)
CASES = {
    "multicast-wide-tile": [(replace(WIDE, cluster=c), RESIDENT) for c in ((1, 1), (2, 1), (1, 2))],
    "multicast-small-tile": [(replace(SMALL, cluster=c), RESIDENT) for c in ((1, 1), (2, 1), (1, 2))],
    "multicast-four": [(replace(WIDE, cluster=c), RESIDENT) for c in ((1, 1), (2, 1), (2, 2), (4, 1))],
    "multicast-residency": [(replace(WIDE, cluster=(4, 1)), ctas) for ctas in (RESIDENT, 132)],
}


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms(gemm for cases in CASES.values() for gemm, _ in cases)


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for size in (4096, 8192):
        for claim, cases in CASES.items():
            compare(bench, claim, kernels, cases, (size, size, size))


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
