"""What TMA multicast gives a bfloat16 GEMM: CTAs of a cluster share tiles of A or B."""

from __future__ import annotations

from dataclasses import replace

from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "multicast-wide-tile": "What does multicast give a GEMM of 128 x 256 tiles?",
    "multicast-small-tile": "What does it give with tiles of 128 x 64, which load more bytes per product?",
    "multicast-four": "Are clusters of four better than clusters of two?",
}
WIDE, SMALL = Gemm(group_m=8), Gemm(tile=(128, 64, 64), stages=8, group_m=8)
CASES = [
    *(("multicast-wide-tile", replace(WIDE, cluster=cluster)) for cluster in ((1, 1), (2, 1), (1, 2))),
    *(("multicast-small-tile", replace(SMALL, cluster=cluster)) for cluster in ((1, 1), (2, 1), (1, 2))),
    *(("multicast-four", replace(WIDE, cluster=cluster)) for cluster in ((2, 1), (2, 2), (4, 1))),
]


def compile_kernels() -> dict[Gemm, Kernel]:
    return {gemm: compile_gemm(gemm) for gemm in {gemm for _, gemm in CASES}}


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for size in (4096, 8192):
        a, b = operands(size, size, size)
        for claim, gemm in CASES:
            call, _ = launch(gemm, kernels[gemm], a, b)
            samples = bench.time_us(call, iterations=12)
            setting = {"size": size, "tile": gemm.tile, "stages": gemm.stages, "cluster": gemm.cluster}
            bench.report(claim, setting, tflops=[2 * size**3 / us / 1e6 for us in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
