"""Real captures, on a real GPU: what the profilers write is what the parsers read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from kwiki_kernels.device import local_gpu
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.judge import run_job
from kwiki_kernels.profile import iket, ncu
from kwiki_kernels.profile.capture import capture_counters, capture_trace
from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.profile.metrics import metrics_of
from kwiki_kernels.task import load_task

from tests.kernels.judge_samples import make_job

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

RMSNORM = Path(__file__).parents[2] / "kernels" / "tasks" / "rmsnorm"


@pytest.fixture(scope="module")
def job() -> Job:
    """RMSNorm on its largest workload, one candidate."""
    task = load_task(RMSNORM)
    gpu = local_gpu()
    assert gpu is not None
    assert gpu.arch is not None
    largest = max(
        task.workloads, key=lambda w: task.definition.bytes_moved(task.definition.axis_values(w.axes))
    )
    knobs = json.loads((RMSNORM / "knobs.json").read_text())["default"]
    candidate = Candidate(id="seed", source=task.seed_for(gpu.arch), knobs=knobs)
    return make_job(
        task_files=task.files, workload_uuids=(largest.uuid,), arch=gpu.arch, candidates=(candidate,)
    )


@pytest.mark.skipif(shutil.which("ncu") is None, reason="needs ncu")
def test_counters_of_rmsnorm_agree_with_the_judge_that_it_is_memory_bound(job: Job) -> None:
    kernels = ncu.read_csv(capture_counters(job, job.candidates[0]))
    counters = ncu.dominant(kernels)
    missing = {
        ncu.DRAM_SHARE,
        ncu.SM_SHARE,
        ncu.stall("long_scoreboard"),
        ncu.WAVES,
    } - counters.metrics.keys()
    assert not missing
    (verdict,) = run_job(job)
    diagnosis = diagnose(metrics_of(verdict, counters))
    assert diagnosis.bound == "memory-bound"
    assert 0.8 < diagnosis.metrics["traffic_ratio"] < 1.2


@pytest.mark.skipif(shutil.which("run-iket") is None, reason="needs run-iket")
def test_a_trace_of_an_instrumented_kernel_holds_its_ranges(job: Job, tmp_path: Path) -> None:
    source = job.candidates[0].source
    marker = "@cute.kernel"
    assert marker in source
    (launch, *_) = iket.read_trace(capture_trace(job, _instrumented(job.candidates[0]), tmp_path))
    assert {"norm_main"} == {span.name for span in launch.spans}
    assert iket.pipeline(launch).roles[0].role == "norm"


def _instrumented(candidate: Candidate) -> Candidate:
    """The kernel with one range around the whole of its body."""
    head, kernel = candidate.source.split("    @cute.kernel\n", 1)
    signature, body = kernel.split("):\n", 1)
    lines = body.splitlines(keepends=True)
    end = next(
        (i for i, line in enumerate(lines) if line.strip() and not line.startswith("        ")), len(lines)
    )
    opened = "        cute.experimental.iket.range_push('norm_main')\n"
    closed = "        cute.experimental.iket.range_pop()\n"
    text = f"{signature}):\n{opened}{''.join(lines[:end]).rstrip()}\n{closed}\n{''.join(lines[end:])}"
    return candidate.model_copy(update={"source": f"{head}    @cute.kernel\n{text}"})
