"""What stays possible on a GPU when everything around it is closed: the judge's work and its candidates'."""

from __future__ import annotations

import pytest
import torch
from kwiki_kernels.device import local_gpu
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.isolation import ALL, PROVEN_WITH_CUDA, PROVEN_WITH_LIBRARIES, Level
from kwiki_kernels.job import Defences
from kwiki_kernels.judge import run_job

from tests.kernels import test_judge_gpu as samples
from tests.kernels.cheat_samples import HONEST, jobs
from tests.kernels.judge_samples import BASELINE, task_files

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

LEVELS = pytest.mark.parametrize("levels", [ALL, *((level,) for level in ALL)], ids="+".join)
COMPILED = BASELINE.replace("def run", "@torch.compile(dynamic=False)\ndef run")
LIBRARY = f"""
import torch
{samples.RIGHT}
def run(x, eps, y):
    y.copy_(right(x @ torch.eye(x.shape[1], dtype=x.dtype, device=x.device)))
"""
NEEDS_THE_HOST = f"import torch{samples.RIGHT}{samples.CHEATS['needs the host']}"


def assert_passed_confined(verdict: Evaluation, levels: tuple[Level, ...]) -> None:
    assert verdict.status is Status.PASSED, verdict.log
    notes = dict(note.split(": ", 1) for note in verdict.environment.isolation)
    assert all(not notes[level].startswith("open") for level in levels), notes


@LEVELS
def test_cuda_works_under_isolation(levels: tuple[Level, ...]) -> None:
    few = {name: HONEST[name] for name in ("row02_persistent", "cute_shared_memory")}
    for job in jobs(few, Defences(isolation=levels), arch=samples.arch()):
        for verdict in run_job(job):
            assert_passed_confined(verdict, levels)


@pytest.mark.parametrize("named", [None, ALL], ids=["of their role", "all"])
def test_libraries_torchs_compiler_and_cupti_work_under_levels(named: tuple[Level, ...] | None) -> None:
    gpu = local_gpu()
    assert gpu is not None
    job = samples.gpu_job(
        {"library": LIBRARY, "needs the host": NEEDS_THE_HOST},
        task_files=task_files(shapes=samples.SHAPES, **{"baseline_compiled.py": COMPILED}),
        baselines=("baseline:compiled",), workload_uuids=("small",),
        protocol=samples.QUICK.model_copy(update={"span": True}),
        defences=Defences(audit=False, kernel_names=False, isolation=named),
    )  # fmt: skip
    compiled, library, needs_the_host = run_job(job)
    for verdict, timer, levels in (
        (compiled, "cuda_graph", PROVEN_WITH_LIBRARIES),
        (library, "cuda_graph", PROVEN_WITH_CUDA),
        (needs_the_host, "cupti", PROVEN_WITH_CUDA),
    ):
        assert_passed_confined(verdict, named or levels)
        timing = verdict.results[0].timing
        assert timing is not None
        assert timing.timer == timer
        assert timing.span_us is not None
        assert (verdict.environment.gpu, verdict.environment.driver) == (gpu.name, gpu.driver)
        assert verdict.environment.sm_clock_mhz


def test_a_job_that_names_no_levels_gets_all_that_cuda_is_known_to_work_under() -> None:
    (verdict,) = run_job(
        samples.gpu_job(
            {"honest": samples.ALLOCATING},
            workload_uuids=("small",),
            defences=Defences(audit=False, kernel_names=False),
        )
    )
    assert_passed_confined(verdict, PROVEN_WITH_CUDA)
