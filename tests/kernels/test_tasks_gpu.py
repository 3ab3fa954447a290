"""Every task at its real sizes on a GPU: baselines and seeds pass, listed or held out."""

from __future__ import annotations

import math

import pytest
import torch
from kwiki_kernels.definition import Workload
from kwiki_kernels.device import local_gpu
from kwiki_kernels.evaluation import Status, WorkloadResult
from kwiki_kernels.job import Candidate, Defences, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import Task, load_task

from tests.kernels.judge_samples import make_job, task_files
from tests.kernels.shrunk_tasks import TASKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

QUICK = Protocol(warmup=1, iterations=5, rounds=2, judge_timeout_s=120)
SMALLEST_AND_LARGEST = {
    "dsa_attention": ("num_tokens",),
    "dsa_indexer": ("batch_size", "max_num_pages"),
    "gdn_decode": ("batch_size",),
    "gdn_prefill": ("total_seq_len", "num_seqs"),
    "gemm": ("M", "N", "K"),
    "grouped_gemm": ("total_rows", "N", "K"),
    "moe_fp8": ("seq_len",),
    "rmsnorm": ("num_tokens", "hidden_size"),
    "softmax": ("rows", "width"),
}
"""The axes whose product orders the workloads of a task."""
SEEDED = sorted({path.parent.name for path in TASKS.glob("*/kernel*.py")})
COMPILED = sorted(path.parent.name for path in TASKS.glob("*/baseline_compiled.py"))
HELD_OUT = 2


def arch() -> str:
    gpu = local_gpu()
    assert gpu is not None
    assert gpu.arch is not None
    return gpu.arch


def smallest_and_largest(task: Task, name: str) -> tuple[str, str]:
    def size(workload: Workload) -> int:
        return math.prod(workload.axes[axis] for axis in SMALLEST_AND_LARGEST[name])

    ordered = sorted(task.workloads, key=size)
    return ordered[0].uuid, ordered[-1].uuid


@pytest.mark.parametrize("name", sorted(SMALLEST_AND_LARGEST))
def test_baselines_pass_at_the_smallest_the_largest_and_held_out_workloads(name: str) -> None:
    task = load_task(TASKS / name)
    job = make_job(
        arch=arch(), task_files=task.files, workload_uuids=smallest_and_largest(task, name),
        baselines=("baseline",), protocol=QUICK, held_out=HELD_OUT,
    )  # fmt: skip
    (baseline,) = run_job(job)
    assert baseline.status is Status.PASSED, baseline.log
    assert len(baseline.results) == 2 + HELD_OUT
    for result in baseline.results:
        assert result.contest_passed is (None if task.tolerance.contest is None else True)
        if not result.held_out:
            assert_sound(result)


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_baselines_pass_at_the_smallest_and_the_largest_workload(name: str) -> None:
    task = load_task(TASKS / name)
    job = make_job(
        arch=arch(), task_files=task.files, workload_uuids=smallest_and_largest(task, name),
        baselines=("baseline:compiled",), protocol=QUICK,
    )  # fmt: skip
    (baseline,) = run_job(job)
    assert baseline.status is Status.PASSED, baseline.log
    for result in baseline.results:
        assert_sound(result)


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_pass_at_the_smallest_the_largest_and_held_out_workloads(name: str) -> None:
    pytest.importorskip("cutlass")
    task = load_task(TASKS / name)
    knobs = task.knob_space.default if task.knob_space else {}
    seed = Candidate(id="seed", source=task.seed_for(arch()), knobs=knobs)
    job = make_job(
        arch=arch(), candidates=(seed,), task_files=task.files, defences=Defences(),
        workload_uuids=smallest_and_largest(task, name), protocol=QUICK, held_out=2 * HELD_OUT,
    )  # fmt: skip
    (verdict,) = run_job(job)
    assert verdict.status is Status.PASSED, verdict.log
    assert len(verdict.results) == 2 + 2 * HELD_OUT
    for result in verdict.results:
        if not result.held_out:
            assert_sound(result)


def assert_sound(result: WorkloadResult) -> None:
    assert result.timing is not None
    assert result.roofline_us is not None
    assert result.floor_us is not None
    assert result.floor_us <= result.roofline_us
    assert result.floor_us < result.timing.median_us


def test_a_workload_that_the_gpu_cannot_hold_is_unmeasured_and_the_others_go_on() -> None:
    source = (
        "def run(x, eps, y): y.copy_(x.float() * (x.float().square().mean(-1, keepdim=True) + eps).rsqrt())"
    )
    shapes = {"huge": (1 << 20, 1 << 20), "small": (4, 64)}
    job = make_job(
        source, arch=arch(), task_files=task_files(shapes=shapes), workload_uuids=("huge", "small"),
        protocol=QUICK,
    )  # fmt: skip
    (verdict,) = run_job(job)
    huge, small = verdict.results
    assert (huge.status, small.status) == (Status.UNMEASURED, Status.PASSED)
    assert huge.log.startswith("too large for this GPU: judging it takes at least 6597.1 GB")
