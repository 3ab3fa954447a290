from __future__ import annotations

import importlib.util
import itertools
import random
from pathlib import Path
from types import ModuleType

import pytest
import torch
from kwiki_kernels.static_report import static_reports
from kwiki_kernels.task import Task, load_task

from tests.kernels.rmsnorm_cubins import TASK, BuildFailedError, compile_rmsnorm

HIDDEN_SIZES = (2048, 4096, 5120, 7168, 8192)


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(TASK)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TASK / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_workloads_are_every_hidden_size_at_every_token_count(task: Task) -> None:
    tokens = (1, 16, 128, 1024, 4096, 16384, 32768)
    shapes = [(w.axes["hidden_size"], w.axes["num_tokens"]) for w in task.workloads]
    assert shapes == list(itertools.product(HIDDEN_SIZES, tokens))
    assert task.workload("h7168-t16384").axes == {"hidden_size": 7168, "num_tokens": 16384}


def test_reference_and_baseline_agree_to_bfloat16_rounding() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(16, 2048, dtype=torch.bfloat16), torch.randn(2048, dtype=torch.bfloat16)
    expected = load("reference").run(x.double(), weight.double())
    assert expected.dtype == torch.float64
    torch.testing.assert_close(load("baseline").run(x, weight).double(), expected, rtol=2**-7, atol=1e-6)


def test_the_default_knobs_are_a_valid_point_for_every_workload(task: Task) -> None:
    assert task.knob_space is not None
    task.knob_space.check(task.knob_space.default)
    assert all(task.knob_space.valid(task.knob_space.default, w.axes) for w in task.workloads)


def test_the_kernel_builds_without_torch_and_reads_by_128_bits(tmp_path: Path) -> None:
    (compiled,), modules = compile_rmsnorm("sm_90a", [(7168, {})], tmp_path)
    assert "torch" not in modules
    (report,) = static_reports(compiled.cubin, "sm_90a", {"hidden_size": 7168})
    assert set(report.global_load_bits) == set(report.global_store_bits) == {128}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_valid_points_of_the_search_space_compile_for(arch: str, task: Task, tmp_path: Path) -> None:
    space = task.knob_space
    assert space is not None
    draw = random.Random(0)
    points = []
    while len(points) < 12:
        knobs = {name: draw.choice(spec.values) for name, spec in space.knobs.items()}
        hidden = draw.choice(HIDDEN_SIZES)
        if space.valid(knobs, {"hidden_size": hidden, "num_tokens": 1}):
            points.append((hidden, knobs))
    compiled, _ = compile_rmsnorm(arch, points, tmp_path)
    assert all(c.cubin.startswith(b"\x7fELF") for c in compiled)


@pytest.mark.parametrize("vector_bits", [16, 64, 128])
def test_a_hidden_size_that_no_tile_divides_compiles(vector_bits: int, tmp_path: Path) -> None:
    knobs = {"vector_bits": vector_bits, "threads_per_row": 64}
    compiled, _ = compile_rmsnorm("sm_90a", [(1000, knobs)], tmp_path)
    (report,) = static_reports(compiled[0].cubin, "sm_90a", {"hidden_size": 1000})
    assert set(report.global_load_bits) == {vector_bits}


@pytest.mark.parametrize(
    ("hidden", "knobs", "message"),
    [
        (1001, {}, "128-bit vectors"),
        (2048, {"threads_per_row": 48}, "multiple of 32"),
        (2048, {"reload": True, "tiles_per_cta": 2}, "tiles_per_cta=1"),
    ],
)
def test_knobs_that_would_compute_wrongly_do_not_build(
    hidden: int, knobs: dict[str, int | bool], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BuildFailedError, match=message):
        compile_rmsnorm("sm_90a", [(hidden, knobs)], tmp_path)
