"""Cooperative warpgroups against ping-pong, by the length of K and the cost of the epilogue."""

from __future__ import annotations

from dataclasses import replace

from hopper_gemm import Gemm, compile_gemm, launch, operands
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "ping-pong-long-k": "Which is faster where K is long, cooperative or ping-pong warpgroups?",
    "ping-pong-short-k": "Which is faster where K is short?",
    "ping-pong-epilogue": "Which is faster where the epilogue is costly, as with stores from registers?",
}
GEMMS = [
    Gemm(tile=(128, 256, 64), stages=4, group_m=8),
    Gemm(tile=(128, 128, 64), stages=6, group_m=8),
    Gemm(tile=(64, 256, 64), stages=5, group_m=16, ping_pong=True),
    Gemm(tile=(128, 128, 64), stages=6, group_m=8, ping_pong=True),
]
DIRECT = [replace(gemm, epilogue="direct") for gemm in GEMMS]


def compile_kernels() -> dict[Gemm, Kernel]:
    return {gemm: compile_gemm(gemm) for gemm in GEMMS + DIRECT}


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for claim, gemms, k in (
        ("ping-pong-long-k", GEMMS, 8192),
        ("ping-pong-short-k", GEMMS, 1024),
        ("ping-pong-short-k", GEMMS, 256),
        ("ping-pong-epilogue", DIRECT, 1024),
    ):
        a, b = operands(8192, 8192, k)
        for gemm in gemms:
            call, _ = launch(gemm, kernels[gemm], a, b)
            samples = bench.time_us(call, iterations=12)
            setting = {"m": 8192, "n": 8192, "k": k, "tile": gemm.tile, "stages": gemm.stages}
            setting |= {
                "schedule": "ping-pong" if gemm.ping_pong else "cooperative",
                "epilogue": gemm.epilogue,
            }
            bench.report(claim, setting, tflops=[2 * 8192 * 8192 * k / us / 1e6 for us in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
