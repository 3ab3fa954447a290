"""Every shipped task: its files agree, its baseline passes, and what computes nothing does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.build import Launch, load_module
from kwiki_kernels.check import Finding
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import as_list
from kwiki_kernels.task import Task
from kwiki_kernels.terms import load_reference

from tests.kernels.shrunk_tasks import SMALL, TASKS, shrunk
from tests.kernels.trial import Trial

Change = Callable[[torch.Tensor], torch.Tensor]
FOLDERS = sorted(path.parent.name for path in TASKS.glob("*/definition.json"))


def make_trial(task: Task, kernel: Callable[..., Any], folder: Path) -> Trial:
    reference, terms = load_reference(task, folder)
    launch = Launch(kernel, returns_outputs=True)
    (workload,) = task.workloads
    return Trial(launch, task.definition, workload, reference=reference, seed=0, terms=terms)


def judge(name: str, folder: Path, change: Change) -> Finding:
    """The finding on the task's baseline with every output changed."""
    task = shrunk(name)
    baseline = load_module(task.baselines["baseline"], folder / "baseline.py").run

    def kernel(*inputs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(map(change, as_list(baseline(*inputs))))

    return make_trial(task, kernel, folder).check()


def mean(output: torch.Tensor) -> torch.Tensor:
    return torch.full_like(output, output.double().mean().item())


def test_every_task_has_a_small_size_here() -> None:
    assert sorted(SMALL) == FOLDERS


@pytest.mark.parametrize("name", FOLDERS)
def test_the_baseline_passes_our_bound_and_the_contests(name: str, tmp_path: Path) -> None:
    task = shrunk(name)
    trial = make_trial(task, load_module(task.baselines["baseline"], tmp_path / "baseline.py").run, tmp_path)
    finding = trial.check()
    assert finding.status is Status.PASSED, finding.log
    assert trial.contest_passed is (None if task.tolerance.contest is None else True)


COMPILED = sorted(path.parent.name for path in TASKS.glob("*/baseline_compiled.py"))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch's own imports
@pytest.mark.parametrize("name", COMPILED)
def test_what_the_compiled_baseline_says_is_right(name: str, tmp_path: Path) -> None:
    task = shrunk(name)
    run = load_module(task.baselines["baseline:compiled"], tmp_path / "compiled.py").run
    with torch.compiler.set_stance("force_eager"):
        finding = make_trial(task, run, tmp_path).check()
    assert finding.status is Status.PASSED, finding.log


@pytest.mark.parametrize("change", [torch.zeros_like, mean])
@pytest.mark.parametrize("name", FOLDERS)
def test_zeros_and_a_mean_fail(name: str, change: Change, tmp_path: Path) -> None:
    assert judge(name, tmp_path, change).status is Status.INCORRECT_NUMERICAL


def test_softmax_without_subtracting_the_maximum_fails(tmp_path: Path) -> None:
    def kernel(logits: torch.Tensor) -> torch.Tensor:
        powers = logits.float().exp()
        return (powers / powers.sum(-1, keepdim=True)).bfloat16()

    assert make_trial(shrunk("softmax"), kernel, tmp_path).check().status is Status.INCORRECT_NUMERICAL


def test_attention_that_uses_rounded_logits_fails(tmp_path: Path) -> None:
    def kernel(q_nope, q_pe, ckv_cache, kpe_cache, indices, sm_scale):  # type: ignore[no-untyped-def]
        slots = indices.clamp_min(0)
        latent, rotary = ckv_cache.flatten(0, 1)[slots], kpe_cache.flatten(0, 1)[slots]
        logits = (sm_scale * (q_nope @ latent.mT + q_pe @ rotary.mT)).float()
        logits = logits.masked_fill((indices < 0)[:, None], -torch.inf)
        lse = logits.logsumexp(-1)
        return (logits.softmax(-1) @ latent.float()).bfloat16(), lse / torch.log(torch.tensor(2.0))

    finding = make_trial(shrunk("dsa_attention"), kernel, tmp_path).check()
    assert finding.status is Status.INCORRECT_NUMERICAL
