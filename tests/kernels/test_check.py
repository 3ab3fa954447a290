"""What the checks let through and what they catch, on CPU tensors through the code that the GPU uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.build import BuildError, Launch, explain, load_module, run_entry
from kwiki_kernels.check import check_values
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import make_inputs
from kwiki_kernels.task import parse_task

from tests.kernels.judge_samples import REFERENCE, task_files
from tests.kernels.trial import Trial

TASK = parse_task(task_files(), {}, origin="test")
EPS = 1e-6

Kernel = Callable[..., Any]


def reference(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def make_trial(kernel: Kernel, uuid: str = "wide", *, returns_outputs: bool = False) -> Trial:
    launch = Launch(kernel, returns_outputs)
    workload = TASK.workload(uuid)
    return Trial(launch, TASK.definition, workload, reference=reference, seed=7)


def fill(value: Callable[[torch.Tensor], torch.Tensor | float]) -> Kernel:
    """A destination-passing kernel that writes `value(x)`."""

    def kernel(x: torch.Tensor, _eps: float, y: torch.Tensor) -> None:
        y.copy_(torch.as_tensor(value(x)).to(y.dtype).expand_as(y))

    return kernel


def right(x: torch.Tensor) -> torch.Tensor:
    return reference(x.float(), EPS)


@pytest.mark.parametrize("uuid", ["small", "wide"])
def test_an_honest_kernel_passes_with_at_most_the_error_of_one_rounding(uuid: str) -> None:
    finding = make_trial(fill(right), uuid).check()
    assert finding.status is Status.PASSED, finding.log
    assert finding.error is not None
    assert 0 < finding.error.relative_l2 < 2e-3


def test_a_kernel_that_rounds_once_more_inside_passes() -> None:
    assert make_trial(fill(lambda x: right(x).bfloat16() * 1.0)).check().status is Status.PASSED


def test_both_calling_styles_are_told_apart_by_the_number_of_parameters(tmp_path: Path) -> None:
    returning = run_entry(load_module("def run(x, eps): ...", tmp_path / "k1.py"), TASK.definition)
    filling = run_entry(load_module("def run(x, eps, y): ...", tmp_path / "k2.py"), TASK.definition)
    assert (returning.returns_outputs, filling.returns_outputs) == (True, False)
    with pytest.raises(BuildError, match="run takes 1 parameters; normalise_rows needs 2"):
        run_entry(load_module("def run(x): ...", tmp_path / "k3.py"), TASK.definition)


def test_a_kernel_that_returns_its_outputs_passes() -> None:
    def kernel(x: torch.Tensor, _eps: float) -> torch.Tensor:
        return right(x).to(x.dtype)

    assert make_trial(kernel, returns_outputs=True).check().status is Status.PASSED


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(fill(lambda _: 0.0), id="zeros"),
        pytest.param(fill(lambda x: right(x).mean()), id="mean"),
        pytest.param(fill(lambda x: x), id="copy of the input, whose norm is 1 in expectation"),
        pytest.param(fill(lambda _: torch.nan), id="NaN"),
        pytest.param(fill(lambda _: torch.inf), id="infinity"),
        pytest.param(fill(lambda x: right(x) * 1.01), id="one percent off"),
        pytest.param(fill(lambda x: right(x).to(torch.float8_e4m3fn)), id="fp8 precision"),
        pytest.param(lambda _x, _eps, _y: None, id="never written"),
        pytest.param(lambda x, _eps, y: y[:-1].copy_(right(x)[:-1]), id="last row not written"),
        pytest.param(lambda x, _eps, y: y.copy_(right(x)).view(-1)[5:6].neg_(), id="one element's sign"),
    ],
)
def test_wrong_values_are_numerically_incorrect(wrong: Kernel) -> None:
    finding = make_trial(wrong).check()
    assert finding.status is Status.INCORRECT_NUMERICAL
    assert "output 'y'" in finding.log


def test_the_log_counts_elements_that_are_not_finite() -> None:
    finding = make_trial(lambda x, _eps, y: y[:-1].copy_(right(x)[:-1])).check()
    assert finding.log == "output 'y': 4096 of 8192 elements are NaN or infinite"


def test_a_result_cached_by_address_is_wrong_once_the_values_change() -> None:
    cache: dict[int, torch.Tensor] = {}

    def kernel(x: torch.Tensor, _eps: float, y: torch.Tensor) -> None:
        y.copy_(cache.setdefault(x.data_ptr(), right(x)))

    trial = make_trial(kernel)
    assert trial.check().status is Status.INCORRECT_NUMERICAL


def test_outputs_left_from_an_earlier_call_do_not_pass() -> None:
    calls = []

    def kernel(x: torch.Tensor, _eps: float, y: torch.Tensor) -> None:
        calls.append(1)
        if len(calls) == 1:
            y.copy_(right(x))

    finding = make_trial(kernel).check()
    assert finding.status is Status.INCORRECT_NUMERICAL
    assert "NaN" in finding.log


@pytest.mark.parametrize(
    ("returned", "status", "log"),
    [
        (lambda x: right(x).bfloat16()[:1], Status.INCORRECT_SHAPE, "has shape (1, 4096), must be (2, 4096)"),
        (lambda x: right(x).bfloat16().view(-1), Status.INCORRECT_SHAPE, "has shape (8192,)"),
        (lambda x: (right(x), right(x)), Status.INCORRECT_SHAPE, "2 outputs; normalise_rows has 1"),
        (right, Status.INCORRECT_DTYPE, "output 'y' is float32, must be bfloat16"),
        (lambda x: right(x).half(), Status.INCORRECT_DTYPE, "output 'y' is float16, must be bfloat16"),
        (lambda _: None, Status.INCORRECT_DTYPE, "output 'y' is a NoneType, no tensor"),
        (
            lambda x: torch.nn.Parameter(right(x).bfloat16()),
            Status.REJECTED,
            "output 'y' is a Parameter: only plain tensors are compared",
        ),
    ],
)
def test_the_form_of_outputs_is_exact(returned: Kernel, status: Status, log: str) -> None:
    finding = make_trial(lambda x, _eps: returned(x), returns_outputs=True).check()
    assert finding.status is status
    assert log in finding.log


def test_a_kernel_that_writes_to_its_inputs_is_rejected() -> None:
    def kernel(x: torch.Tensor, _eps: float, y: torch.Tensor) -> None:
        y.copy_(right(x))
        x[0, 0] = 0

    finding = make_trial(kernel).check()
    assert (finding.status, finding.log) == (Status.REJECTED, "input 'x' was changed by the kernel")


def test_infinities_of_the_reference_must_be_met() -> None:
    expected = torch.full((2, 64), -torch.inf, dtype=torch.float64)
    expected[1] = 1.0
    same = check_values(TASK.definition, [expected.bfloat16()], [expected])
    other = check_values(TASK.definition, [expected.bfloat16().abs()], [expected])
    assert (same.status, other.status) == (Status.PASSED, Status.INCORRECT_NUMERICAL)


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ([torch.inf, -torch.inf, 60000.0], Status.PASSED),
        ([65504.0, -65504.0, 60000.0], Status.PASSED),
        ([torch.inf, torch.inf, 60000.0], Status.INCORRECT_NUMERICAL),
        ([torch.inf, -torch.inf, torch.inf], Status.INCORRECT_NUMERICAL),
        ([torch.nan, -torch.inf, 60000.0], Status.INCORRECT_NUMERICAL),
        ([0.0, -torch.inf, 60000.0], Status.INCORRECT_NUMERICAL),
    ],
)
def test_what_leaves_the_range_of_its_dtype_may_overflow_or_saturate(
    output: list[float], status: Status
) -> None:
    expected = torch.tensor([70000.0, -90000.0, 60000.0], dtype=torch.float64)
    finding = check_values(TASK.definition, [torch.tensor(output, dtype=torch.float16)], [expected])
    assert finding.status is status, finding.log


def test_an_exception_in_the_kernel_points_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    text = "def run(x, eps, y):\n    return x + undefined\n"
    launch = run_entry(load_module(text, path), TASK.definition)
    with pytest.raises(NameError) as caught:
        make_trial(launch.function).check()
    assert (
        explain(caught.value, path)
        == "NameError: name 'undefined' is not defined\n  at kernel.py:2: return x + undefined"
    )


def test_the_same_seed_gives_the_same_inputs_and_another_seed_others() -> None:
    workload = TASK.workload("small")
    first, again, other = (make_inputs(TASK.definition, workload, seed, "cpu") for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert first[1] == EPS


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e5m2", "float16", "float32", "int8", "int64", "bool"]
)
def test_inputs_of_every_dtype_are_drawn_within_their_range(dtype: str) -> None:
    definition = TASK.definition.model_copy(
        update={"inputs": {"x": TASK.definition.inputs["x"].model_copy(update={"dtype": dtype})}}
    )
    (x,) = make_inputs(definition, TASK.workload("wide"), 0, "cpu", spread=4.0)
    assert x.dtype is getattr(torch, dtype)
    assert x.double().isfinite().all()
    if "float8" in dtype:
        assert x.double().abs().max() == 2.0


def test_a_scalar_without_a_value_and_a_failing_reference_are_the_tasks_fault() -> None:
    bare = TASK.workload("small").model_copy(update={"inputs": {}})
    with pytest.raises(TaskError, match="workload small gives no value for the scalar 'eps'"):
        make_inputs(TASK.definition, bare, 0, "cpu")
    trial = make_trial(fill(right))
    trial.examination.reference = lambda x: x
    with pytest.raises(TaskError, match="the task's reference fails: TypeError"):
        trial.check()


def test_the_reference_of_the_samples_is_the_one_tested_here() -> None:
    namespace: dict[str, Any] = {}
    exec(REFERENCE, namespace)
    x = torch.randn(3, 8, dtype=torch.float64)
    assert torch.equal(namespace["run"](x, EPS), reference(x, EPS))
