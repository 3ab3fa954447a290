"""Cooperative warpgroups against ping-pong, by the length of K and the cost of the epilogue."""

from __future__ import annotations

from dataclasses import replace

from gemm_bench import RESIDENT, compare, compile_gemms
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "ping-pong-long-k": "Which is faster where K is long, cooperative or ping-pong warpgroups?",
    "ping-pong-short-k": "Which is faster where K is short?",
    "ping-pong-epilogue": "Which is faster where the epilogue is costly, as with stores from registers?",
}
GEMMS = [
    Gemm(tile=(128, 256, 64), stages=4, group_m=16),
    Gemm(tile=(128, 128, 64), stages=4, group_m=16),
    Gemm(tile=(64, 256, 64), stages=4, group_m=16, ping_pong=True),
    Gemm(tile=(128, 128, 64), stages=4, group_m=16, ping_pong=True),
]
DIRECT = [replace(gemm, epilogue="direct") for gemm in GEMMS]


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms(GEMMS + DIRECT)


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for claim, gemms, k in (
        ("ping-pong-long-k", GEMMS, 8192),
        ("ping-pong-short-k", GEMMS, 1024),
        ("ping-pong-short-k", GEMMS, 256),
        ("ping-pong-epilogue", DIRECT, 1024),
    ):
        compare(bench, claim, kernels, [(gemm, RESIDENT) for gemm in gemms], (8192, 8192, k))


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
