"""Every task at its real sizes on a GPU: baselines pass, and no time beats the floor."""

from __future__ import annotations

import pytest
import torch
from kwiki_kernels.device import local_gpu
from kwiki_kernels.evaluation import Status, WorkloadResult
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import load_task

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
    "softmax": ("rows", "width"),
}
"""The axes whose product orders the workloads of a task."""


def arch() -> str:
    gpu = local_gpu()
    assert gpu is not None
    assert gpu.arch is not None
    return gpu.arch


@pytest.mark.parametrize("name", sorted(SMALLEST_AND_LARGEST))
def test_baselines_pass_at_the_smallest_and_the_largest_workload(name: str) -> None:
    task = load_task(TASKS / name)

    def size(uuid: str) -> int:
        axes = task.workload(uuid).axes
        return int(torch.tensor([axes[axis] for axis in SMALLEST_AND_LARGEST[name]]).prod())

    ordered = sorted((workload.uuid for workload in task.workloads), key=size)
    job = make_job(
        arch=arch(), task_files=task.files, workload_uuids=(ordered[0], ordered[-1]),
        baselines=("baseline",), protocol=QUICK,
    )  # fmt: skip
    (baseline,) = run_job(job)
    assert baseline.status is Status.PASSED, baseline.log
    for result in baseline.results:
        assert result.contest_passed is (None if task.tolerance.contest is None else True)
        assert_sound(result)


def assert_sound(result: WorkloadResult) -> None:
    assert result.timing is not None
    assert result.roofline_us is not None
    assert result.floor_us is not None
    assert result.floor_us <= result.roofline_us
    assert result.floor_us < result.timing.median_us


def test_the_seed_of_softmax_passes_on_every_workload() -> None:
    pytest.importorskip("cutlass")
    task = load_task(TASKS / "softmax")
    assert task.knob_space is not None
    seed = Candidate(id="seed", source=task.seed_for(arch()), knobs=task.knob_space.default)
    job = make_job(
        arch=arch(), candidates=(seed,), task_files=task.files,
        workload_uuids=tuple(workload.uuid for workload in task.workloads), protocol=QUICK,
    )  # fmt: skip
    (verdict,) = run_job(job)
    assert verdict.status is Status.PASSED, verdict.log
    for result in verdict.results:
        assert_sound(result)


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
