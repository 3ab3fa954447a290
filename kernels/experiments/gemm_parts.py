"""How many stages a warp-specialised bfloat16 GEMM needs, and what its parts are worth."""

from __future__ import annotations

from dataclasses import replace

import torch
from gemm_bench import ONE_PER_TILE, RESIDENT, compare, compile_gemms, make_call, operands
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "gemm-stages": "How many stages does a 128 x 128 x 64 bfloat16 GEMM need?",
    "gemm-stages-wide": "How many stages does a 128 x 256 x 64 bfloat16 GEMM need?",
    "gemm-in-flight": "Does leaving a group of products in flight while the next tile is awaited pay?",
    "gemm-epilogue": "Does writing C through shared memory and TMA beat stores from registers?",
    "gemm-registers": "What does reallocating registers give a GEMM of 128 x 256 tiles?",
    "gemm-tile": "Which tile is fastest at 8192 x 8192 x 8192?",
    "gemm-persistent": "Does a persistent kernel beat one CTA per tile?",
    "gemm-cublas": "Which share of cuBLAS's speed does the simple 128 x 256 kernel reach?",
}
CUBE = (8192, 8192, 8192)
WIDE = Gemm(group_m=16)
SQUARE = Gemm(tile=(128, 128, 64), stages=4, group_m=16)
# claim, shape, kernels with their grids
CASES = [
    ("gemm-stages", CUBE, [(replace(SQUARE, stages=stages), RESIDENT) for stages in (2, 3, 4, 5, 6)]),
    ("gemm-stages-wide", CUBE, [(replace(WIDE, stages=stages), RESIDENT) for stages in (2, 3, 4)]),
    ("gemm-in-flight", CUBE, [(replace(WIDE, in_flight=in_flight), RESIDENT) for in_flight in (0, 1)]),
    ("gemm-epilogue", CUBE, [(replace(WIDE, epilogue=epilogue), RESIDENT) for epilogue in ("tma", "direct")]),
    (
        "gemm-epilogue",
        (8192, 8192, 512),
        [(replace(WIDE, epilogue=epilogue), RESIDENT) for epilogue in ("tma", "direct")],
    ),
    (
        "gemm-registers",
        CUBE,
        [(replace(WIDE, registers=registers), RESIDENT) for registers in ((40, 232), (24, 240), None)],
    ),
    (
        "gemm-tile",
        CUBE,
        [
            (gemm, RESIDENT)
            for gemm in (
                WIDE,
                Gemm(tile=(128, 192, 64), stages=4, group_m=16),
                SQUARE,
                Gemm(tile=(128, 64, 64), stages=6, group_m=16),
                Gemm(tile=(256, 128, 64), stages=4, group_m=16),
            )
        ],
    ),
    ("gemm-persistent", CUBE, [(WIDE, RESIDENT), (WIDE, ONE_PER_TILE)]),
    ("gemm-persistent", (8192, 8192, 1024), [(WIDE, RESIDENT), (WIDE, ONE_PER_TILE)]),
]


def compile_kernels() -> dict[Gemm, Kernel]:
    return compile_gemms(gemm for _, _, cases in CASES for gemm, _ in cases)


def measure(kernels: dict[Gemm, Kernel], bench: Bench) -> None:
    for claim, shape, cases in CASES:
        compare(bench, claim, kernels, cases, shape)
    a, b = operands(*CUBE)
    out = torch.empty(CUBE[0], CUBE[1], dtype=torch.bfloat16, device="cuda")
    own, _ = make_call(WIDE, kernels[WIDE], a, b)
    samples = bench.compare_us({"own": own, "cublas": lambda: torch.matmul(a, b.T, out=out)}, rounds=8)
    tflops = {f"{name}_tflops": [2 * 8192**3 / us / 1e6 for us in times] for name, times in samples.items()}
    bench.report("gemm-cublas", {"m": CUBE[0], "n": CUBE[1], "k": CUBE[2]}, **tflops)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
