"""The judge on a real GPU: honest kernels pass, and each way of being wrong gets its verdict."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from kwiki_kernels import cupti, timing
from kwiki_kernels.device import local_gpu
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate, Job, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.launched import kernel_names
from kwiki_kernels.task import load_task

from tests.kernels.judge_samples import BASELINE, HONEST, make_job, task_files

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

PROCESS_OFFSET_US = 0.2
"""Standard deviation; measured, see docs/timing.md."""
RMSNORM = Path(__file__).parents[2] / "kernels" / "tasks" / "rmsnorm"
SHAPES = {"small": (4, 64), "wide": (512, 4096)}
QUICK = Protocol(warmup=1, iterations=10, rounds=2, judge_timeout_s=60)
RIGHT = """
def right(x):
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)
"""
ALLOCATING = "import torch" + RIGHT + "def run(x, eps): return right(x).to(x.dtype)"
CHEATS = {
    "zeros": "def run(x, eps, y): y.zero_()",
    "nan": "def run(x, eps, y): y.fill_(float('nan'))",
    "never written": "def run(x, eps, y): pass",
    "wrong shape": "def run(x, eps): return right(x).to(x.dtype).view(-1)",
    "wrong dtype": "def run(x, eps): return right(x)",
    "copied input": "def run(x, eps, y): y.copy_(x)",
    "writes its input": "def run(x, eps, y):\n    y.copy_(right(x))\n    x.zero_()",
    "cached by address": (
        "cache = {}\n"
        "def run(x, eps, y):\n"
        "    if x.data_ptr() not in cache: cache[x.data_ptr()] = right(x).to(y.dtype)\n"
        "    y.copy_(cache[x.data_ptr()])"
    ),
    "idle once checked": (
        "calls = []\ndef run(x, eps, y):\n    calls.append(1)\n    if len(calls) <= 2: y.copy_(right(x))"
    ),
    "idle when captured": (
        "def run(x, eps, y):\n    if not torch.cuda.is_current_stream_capturing(): y.copy_(right(x))"
    ),
    "one bad row": "def run(x, eps, y):\n    y.copy_(right(x))\n    y[-1] *= 1.05",
    "reads out of bounds": (
        "def run(x, eps, y): y.copy_(x[torch.full((x.shape[0],), 1 << 30, device=x.device)])"
    ),
    "raises": "def run(x, eps, y): raise ValueError('on purpose')",
    "aborts": "import os\ndef run(x, eps, y): os.abort()",
    "needs the host": "def run(x, eps, y):\n    assert x.sum().item() != 1.5\n    y.copy_(right(x))",
}
VERDICTS = {
    "zeros": (Status.INCORRECT_NUMERICAL, "relative L2 error 1 "),
    "nan": (Status.INCORRECT_NUMERICAL, "256 of 256 elements are NaN"),
    "never written": (Status.INCORRECT_NUMERICAL, "256 of 256 elements are NaN"),
    "wrong shape": (Status.INCORRECT_SHAPE, "has shape (256,), must be (4, 64)"),
    "wrong dtype": (Status.INCORRECT_DTYPE, "is float32, must be bfloat16"),
    "copied input": (Status.INCORRECT_NUMERICAL, "relative L2"),
    "writes its input": (Status.REJECTED, "input 'x' was changed"),
    "cached by address": (Status.INCORRECT_NUMERICAL, "relative L2"),
    "idle once checked": (Status.INCORRECT_NUMERICAL, "wrong in the timed calls, though right before"),
    "idle when captured": (Status.INCORRECT_NUMERICAL, "wrong in the timed calls, though right before"),
    "one bad row": (Status.INCORRECT_NUMERICAL, "output 'y'"),
    "reads out of bounds": (Status.RUNTIME_ERROR, "workload small"),
    "raises": (Status.RUNTIME_ERROR, "ValueError: on purpose\n  at kernel.py:"),
    "aborts": (Status.RUNTIME_ERROR, "the process died of SIGABRT on workload small"),
    "needs the host": (Status.PASSED, ""),
}


def arch() -> str:
    gpu = local_gpu()
    assert gpu is not None
    if gpu.arch is None:
        pytest.skip(f"the judge knows no architecture for {gpu.name}")
    return gpu.arch


def gpu_job(candidates: dict[str, str], **fields: object) -> Job:
    defaults: dict[str, object] = {
        "arch": arch(),
        "candidates": tuple(Candidate(id=name, source=source) for name, source in candidates.items()),
        "task_files": task_files(shapes=SHAPES),
        "workload_uuids": tuple(SHAPES),
        "protocol": QUICK,
    }
    return make_job(**{**defaults, **fields})


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Evaluation]:
    """Honest kernels and cheats, judged in one job."""
    cheats = {name: "import torch" + RIGHT + source for name, source in CHEATS.items()}
    job = gpu_job({"honest": HONEST, "allocating": ALLOCATING, **cheats}, baselines=("baseline",))
    return {e.candidate_id: e for e in run_job(job)}


@pytest.mark.parametrize("name", ["baseline", "honest", "allocating"])
def test_an_honest_kernel_passes_and_is_timed_in_a_graph(name: str, verdicts: dict[str, Evaluation]) -> None:
    verdict = verdicts[name]
    assert verdict.status is Status.PASSED, verdict.log
    for result in verdict.results:
        assert result.timing is not None
        assert result.timing.timer == "cuda_graph"
        assert [len(samples) for samples in result.timing.device_us] == [10, 10]
        assert 1 < result.timing.median_us < 1000
        assert 1 < result.timing.host_us < 10_000
        assert result.error is not None
        assert 1e-3 < result.error.relative_l2 < 2e-3


@pytest.mark.parametrize("name", CHEATS)
def test_each_way_of_being_wrong_gets_its_verdict(name: str, verdicts: dict[str, Evaluation]) -> None:
    status, log = VERDICTS[name]
    assert verdicts[name].status is status, verdicts[name].log
    assert log in verdicts[name].log


def test_a_kernel_that_cannot_be_captured_is_timed_by_cupti_and_says_so(
    verdicts: dict[str, Evaluation],
) -> None:
    for result in verdicts["needs the host"].results:
        assert result.timing is not None
        assert result.timing.timer == "cupti"
        assert result.log.startswith("not capturable in a CUDA graph")
        assert result.log.endswith("timed by CUPTI")
        assert 1 < result.timing.median_us < 100


def test_the_gpu_is_read_after_each_round_and_found_undisturbed(verdicts: dict[str, Evaluation]) -> None:
    for result in verdicts["honest"].results:
        assert result.timing is not None
        conditions = result.timing.conditions
        assert conditions is not None
        assert 200 < conditions.sm_clock_mhz[0] <= conditions.sm_clock_mhz[1] < 3000
        assert 15 < conditions.temperature_c < 100
        assert 50 < conditions.power_w < 1500
        assert conditions.others == 0
        assert result.timing.disturbed == ""


def test_another_process_on_the_gpu_marks_the_measurement() -> None:
    busy = "import torch\nx = torch.randn(4096, 4096, device='cuda')\nprint(flush=True)\nwhile True: x @ x"
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as tenant:
        assert tenant.stdout is not None
        tenant.stdout.readline()
        try:
            (honest,) = run_job(gpu_job({"honest": HONEST}, workload_uuids=("wide",)))
        finally:
            tenant.kill()
    timing_ = honest.results[0].timing
    assert timing_ is not None
    assert timing_.disturbed == "1 other processes computed on the GPU"


def test_rivals_that_take_turns_agree_on_the_same_kernel() -> None:
    protocol = Protocol(iterations=20).interleaved()
    job = gpu_job({"a": BASELINE, "b": BASELINE, "wrong": CHEATS["zeros"]}, protocol=protocol)
    a, b, wrong = run_job(job)
    assert wrong.status is Status.INCORRECT_NUMERICAL
    for one, other in zip(a.results, b.results, strict=True):
        assert one.timing is not None
        assert other.timing is not None
        assert one.timing.order == "interleaved"
        assert [len(samples) for samples in one.timing.device_us] == [20] * 4
        apart_us = abs(one.timing.median_us - other.timing.median_us)
        assert apart_us < 4 * PROCESS_OFFSET_US, "processes differ by their offsets, and by no more"


def test_the_contests_span_holds_the_hosts_gaps_and_device_time_does_not() -> None:
    x = torch.randn(1 << 20, device="cuda")

    def two_kernels_far_apart() -> list[torch.Tensor]:
        y = x.neg()
        time.sleep(2e-4)
        return [y.neg()]

    span_us = timing.span_us(two_kernels_far_apart, QUICK)
    device_us = statistics.median(timing.CuptiTimer(two_kernels_far_apart, QUICK, "").round())
    assert span_us is not None
    assert span_us > 200
    assert 1 < device_us < 50


def test_a_graph_and_cupti_name_the_same_kernels_and_no_copies() -> None:
    x = torch.randn(1 << 10, device="cuda")
    y = torch.empty_like(x)

    def call() -> None:
        torch.neg(x, out=y)
        y.copy_(x)
        torch.exp(x, out=y)

    call()
    by_graph, by_cupti = kernel_names(call, capturable=True), cupti.kernel_names(call)
    assert len(by_graph) == len(by_cupti) == 2
    for word, mangled, name in zip(("neg_kernel", "exp_kernel"), by_graph, by_cupti, strict=True):
        assert word in mangled
        assert word in name


def test_cupti_and_the_graph_agree_on_one_kernel() -> None:
    x = torch.randn(1 << 26, device="cuda")
    y = torch.empty_like(x)
    call = partial(torch.neg, x, out=y)
    call()
    graph = statistics.median(timing.GraphTimer(call, QUICK).round())
    cupti = statistics.median(timing.CuptiTimer(call, QUICK, "").round())
    assert cupti == pytest.approx(graph, abs=6, rel=0.02)


def test_after_a_broken_context_the_other_workloads_are_not_believed(verdicts: dict[str, Evaluation]) -> None:
    small, wide = verdicts["reads out of bounds"].results
    assert (small.status, wide.status) == (Status.RUNTIME_ERROR, Status.UNMEASURED)


def test_the_environment_holds_the_machines_own_figures(verdicts: dict[str, Evaluation]) -> None:
    environment = verdicts["honest"].environment
    assert environment.gpu is not None
    assert environment.driver
    assert environment.versions["cuda"]
    assert environment.copy_gbps is not None
    assert environment.copy_gbps > 500
    assert environment.timer_floor_us is not None
    assert 0 < environment.timer_floor_us < 10


def test_a_kernel_that_hangs_is_killed_and_the_next_one_runs() -> None:
    hang = "import torch\ndef run(x, eps, y): torch.cuda._sleep(1 << 50)"
    limits = QUICK.model_copy(update={"judge_timeout_s": 8})
    job = gpu_job({"hang": hang, "honest": HONEST}, protocol=limits)
    hung, honest = run_job(job, parallel_builds=1)
    assert hung.status is Status.TIMEOUT
    assert hung.log == "workload small: not judged within 8 s: stopped on workload small"
    assert honest.status is Status.PASSED, honest.log


def test_the_same_kernel_in_two_processes_takes_the_same_time_but_for_their_offsets() -> None:
    job = gpu_job({"a": BASELINE, "b": BASELINE}, protocol=Protocol(), workload_uuids=("wide",))
    a, b = (e.results[0].timing for e in run_job(job))
    assert a is not None
    assert b is not None
    assert abs(a.median_us - b.median_us) < 4 * PROCESS_OFFSET_US


def test_twice_the_bytes_take_twice_the_time() -> None:
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    half, whole = (
        timing.GraphTimer(partial(torch.neg, x[:count], out=y[:count]), QUICK).round()
        for count in (1 << 27, 1 << 28)
    )
    assert 1.8 < statistics.median(whole) / statistics.median(half) < 2.2


def test_a_cold_l2_is_slower_than_a_warm_one() -> None:
    x = torch.randn(1 << 22, device="cuda")
    y = torch.empty_like(x)
    call = partial(torch.neg, x, out=y)
    call()
    cold = statistics.median(timing.GraphTimer(call, QUICK).round())
    warm_protocol = QUICK.model_copy(update={"cold_l2": False})
    warm = statistics.median(timing.GraphTimer(call, warm_protocol).round())
    assert cold > 1.05 * warm


def test_the_seed_of_rmsnorm_builds_is_right_and_is_timed() -> None:
    pytest.importorskip("cutlass")
    task = load_task(RMSNORM)
    assert task.knob_space is not None
    uuids = ("h2048-t1", "h5120-t128", "h7168-t16384")
    candidate = Candidate(id="seed", source=task.seed_for(arch()), knobs=task.knob_space.default)
    job = make_job(
        arch=arch(), candidates=(candidate,), task_files=task.files, workload_uuids=uuids,
        baselines=("baseline", "baseline:compiled"),
        protocol=Protocol(iterations=20),
    )  # fmt: skip
    baseline, compiled, seed = run_job(job)
    for verdict in (baseline, compiled, seed):
        assert verdict.status is Status.PASSED, verdict.log
        assert all(result.timing.timer == "cuda_graph" for result in verdict.results if result.timing)
    assert [report.static_axes["hidden_size"] for report in seed.static_reports] in ([], [2048, 5120, 7168])
    big = seed.results[-1]
    assert big.timing is not None
    assert big.bytes_moved is not None
    gbps = big.bytes_moved / big.timing.median_us / 1e3
    assert seed.environment.copy_gbps is not None
    assert gbps < 1.05 * seed.environment.copy_gbps
