"""Rows far off the distribution: what they are, and which shortcuts they expose."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from kwiki_kernels.build import Launch
from kwiki_kernels.check import Finding
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import make_inputs
from kwiki_kernels.probes import LARGE, bend_rows, row_kinds
from kwiki_kernels.task import parse_task

from tests.kernels.judge_samples import task_files
from tests.kernels.trial import Trial

TASK = parse_task(task_files(shapes={"wide": (16, 1 << 16), "one": (1, 64)}), {}, origin="test")
SPREAD = 4.0


def probe(uuid: str = "wide", seed: int = 0) -> torch.Tensor:
    x, _ = make_inputs(TASK.definition, TASK.workload(uuid), seed, "cpu", spread=SPREAD)
    assert isinstance(x, torch.Tensor)
    return x.double()


def check(kernel: Callable[[torch.Tensor], torch.Tensor]) -> Finding:
    def run(x: torch.Tensor, _eps: float) -> torch.Tensor:
        return (kernel(x.float()) * torch.ones(())).to(x.dtype)

    def reference(x: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

    launch = Launch(run, returns_outputs=True)
    trial = Trial(launch, TASK.definition, TASK.workload("wide"), reference=reference, seed=0)
    return trial.check()


def test_half_of_the_rows_are_special_and_each_kind_is_among_them() -> None:
    x = probe()
    deviation = x.std(-1)
    one_hot = (x != 0).sum(-1) == 1
    ordinary = ((deviation - SPREAD).abs() < 0.1) & ~one_hot
    large = ((deviation - LARGE * SPREAD).abs() < 1).sum()
    zero = (x == 0).all(-1).sum()
    constant = ((x == x[:, :1]).all(-1) & (x[:, 0] != 0)).sum()
    assert (ordinary.sum(), large, zero, constant, one_hot.sum()) == (8, 2, 2, 2, 2)
    assert x.max(dim=-1).values[one_hot].unique().tolist() == [SPREAD * 256]
    assert ((deviation[one_hot] - SPREAD).abs() < 0.1).all(), "errors in them weigh as much as in others"


def test_rows_and_kinds_follow_from_the_seed() -> None:
    assert torch.equal(probe(seed=1), probe(seed=1))
    zero = [(probe(seed=seed) == 0).all(-1).tolist() for seed in (1, 2)]
    assert zero[0] != zero[1]


def test_a_row_alone_and_a_vector_are_only_scaled() -> None:
    assert 2 < float(probe("one").std()) < 6
    kinds = [int(row_kinds(1, torch.Generator().manual_seed(seed))) % 2 for seed in range(8)]
    assert not any(kinds)


def test_plain_inputs_have_no_special_rows() -> None:
    x, _ = make_inputs(TASK.definition, TASK.workload("wide"), 0, "cpu")
    assert ((x.float().std(-1) - 1).abs() < 0.05).all()


def test_rows_are_bent_piece_by_piece() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, 5, generator=generator)
    kept = drawn.clone()
    bend_rows(drawn, torch.tensor([0, 5, 3]), SPREAD, generator)
    assert torch.equal(drawn[0], kept[0])
    assert not drawn[1].any()
    assert torch.equal(drawn[2], kept[2, 0].expand(5))


def norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def test_an_honest_kernel_passes() -> None:
    assert check(norm).status is Status.PASSED


@pytest.mark.parametrize(
    "shortcut",
    [
        pytest.param(lambda x: x / x.std(-1, keepdim=True), id="takes the mean for zero"),
        pytest.param(lambda x: x / x.square().mean(-1, keepdim=True).sqrt(), id="divides by zero"),
        pytest.param(lambda x: norm(x.clamp(-32, 32)), id="clips what is never large"),
        pytest.param(lambda x: x * x.square().mean().rsqrt(), id="one norm for all rows"),
        pytest.param(
            lambda x: x * x[:, ::2].square().mean(-1, keepdim=True).add(1e-6).rsqrt(),
            id="norm of half a row",
        ),
    ],
)
def test_a_shortcut_that_holds_in_expectation_fails(
    shortcut: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x, _ = make_inputs(TASK.definition, TASK.workload("wide"), 0, "cpu")
    close = torch.linalg.vector_norm(shortcut(x.float()) - norm(x.float())) / x.numel() ** 0.5
    assert close < 5e-3, "would pass where all rows are normal"
    assert check(shortcut).status is Status.INCORRECT_NUMERICAL


def test_a_half_precision_product_passes_though_its_range_is_small() -> None:
    matrix = {"shape": ["n", "k"], "dtype": "float16"}
    definition = {
        "name": "product", "op_type": "gemm", "axes": {"n": {"type": "var"}, "k": {"type": "var"}},
        "inputs": {"a": matrix, "b": matrix}, "outputs": {"c": {"shape": ["n", "n"], "dtype": "float16"}},
        "reference": "def run(a, b):\n    return a @ b.T\n",
    }  # fmt: skip
    workload = {"uuid": "w", "axes": {"n": 200, "k": 8192}}
    files = {"definition.json": json.dumps(definition), "workloads.jsonl": json.dumps(workload)}
    task = parse_task(files, {}, origin="test")

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.float() @ b.float().T).half()

    trial = Trial(
        Launch(run, returns_outputs=True), task.definition, task.workloads[0], seed=0,
        reference=lambda a, b: a @ b.T,
    )  # fmt: skip
    finding = trial.check()
    assert finding.status is Status.PASSED, finding.log
