"""Which GPU the judge sees, asked of an nvidia-smi that answers as the real one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_kernels.device import Gpu, environment, local_gpu
from kwiki_kernels.errors import MachineError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.judge import run_job

from tests.kernels.judge_samples import HONEST, make_job

H200 = "NVIDIA H200, 9.0, 580.159.04, 345"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi on PATH that prints what is written into `answer` beside it."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/answer\n')
    tool.chmod(0o755)
    (tmp_path / "answer").write_text(H200 + "\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.usefixtures("smi")
def test_an_h200_is_found_and_named() -> None:
    gpu = local_gpu()
    assert gpu == Gpu(name="NVIDIA H200", compute_capability=(9, 0), driver="580.159.04", sm_clock_mhz=345)
    assert gpu.arch == "sm_90a"
    assert environment(gpu).gpu == "NVIDIA H200"
    assert environment(gpu).driver == "580.159.04"


@pytest.mark.parametrize(("capability", "arch"), [("10.0", "sm_100a"), ("10.3", "sm_103a"), ("8.0", None)])
def test_the_compute_capability_decides_the_arch(capability: str, arch: str | None, smi: Path) -> None:
    (smi / "answer").write_text(f"Some GPU, {capability}, 580.1, [N/A]\n")
    gpu = local_gpu()
    assert gpu is not None
    assert (gpu.arch, gpu.sm_clock_mhz) == (arch, None)


def test_the_first_visible_device_is_asked_for(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert local_gpu() is not None
    assert "--id=3" in (smi / "asked").read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local_gpu() is None


@pytest.mark.parametrize("answer", ["", "No devices were found\n", "NVIDIA H200, 9.0\n"])
def test_an_nvidia_smi_that_cannot_answer_means_no_gpu(answer: str, smi: Path) -> None:
    (smi / "answer").write_text(answer)
    assert local_gpu() is None


@pytest.mark.usefixtures("smi")
def test_a_job_for_another_arch_than_this_gpus_is_only_compiled() -> None:
    (evaluation,) = run_job(make_job(HONEST, arch="sm_100a"))
    assert evaluation.status is Status.UNMEASURED
    sentence = "this GPU is an NVIDIA H200 (sm_90a), the job is for sm_100a: nothing was measured"
    assert evaluation.log == sentence


@pytest.mark.usefixtures("smi")
def test_a_gpu_that_does_not_answer_is_an_error_and_no_candidates_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "63")
    with pytest.raises(MachineError, match="the GPU cannot be used: the process exited with code 1"):
        run_job(make_job(HONEST))
