"""A Blackwell tensor-core kernel, judged where there is no Blackwell: what its binary alone tells."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.judge import run_job

from tests.kernels.judge_samples import make_job

KERNEL = Path(__file__).with_name("tcgen05_gemm.py")
DEFINITION = {
    "name": "small_gemm",
    "op_type": "gemm",
    "axes": {"m": {"type": "var"}, "n": {"type": "var"}, "k": {"type": "var"}},
    "inputs": {
        "a": {"shape": ["m", "k"], "dtype": "bfloat16"},
        "b": {"shape": ["n", "k"], "dtype": "bfloat16"},
    },
    "outputs": {"c": {"shape": ["m", "n"], "dtype": "float32"}},
}
FILES = {
    "definition.json": json.dumps(DEFINITION),
    "workloads.jsonl": json.dumps({"uuid": "tile", "axes": {"m": 128, "n": 128, "k": 64}}),
    "reference.py": "def run(a, b):\n    return a @ b.T\n",
}


def build(source: str) -> Evaluation:
    job = make_job(source, task_files=FILES, workload_uuids=("tile",), arch="sm_100a", stage="build")
    (verdict,) = run_job(job)
    assert verdict.status is Status.UNMEASURED, verdict.log
    return verdict


@pytest.fixture(scope="module")
def timed() -> tuple[Evaluation, float]:
    start = time.monotonic()
    return build(KERNEL.read_text(encoding="utf-8")), time.monotonic() - start


def test_the_report_names_the_units_that_a_blackwell_gemm_uses(timed: tuple[Evaluation, float]) -> None:
    (report,) = timed[0].static_reports
    assert report.features["tcgen05.mma"] == 4  # 64 in steps of 16
    assert report.features["tcgen05.ld"] == 4  # 128 columns in parts of 32
    assert report.features["tma.load"] == 2
    assert "wgmma" not in report.features
    assert "mma.sync" not in report.features


def test_the_report_sizes_shared_and_tensor_memory(timed: tuple[Evaluation, float]) -> None:
    (report,) = timed[0].static_reports
    operands_bytes = 2 * 128 * 64 * 2
    assert operands_bytes <= report.smem_bytes <= operands_bytes + 1024
    assert report.tmem_columns == 128
    assert report.global_store_bits == {32: 128}
    assert (report.registers, report.threads_per_cta) == (pytest.approx(54, abs=20), 128)


def test_the_report_of_a_tcgen05_kernel_is_there_within_ten_seconds(timed: tuple[Evaluation, float]) -> None:
    assert timed[1] <= 10


def test_a_larger_allocation_of_tensor_memory_shows() -> None:
    source = KERNEL.read_text(encoding="utf-8").replace("COLUMNS = TILE_N", "COLUMNS = 512")
    (report,) = build(source).static_reports
    assert report.tmem_columns == 512
