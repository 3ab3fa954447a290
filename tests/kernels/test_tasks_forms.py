"""Bad task folders are refused in one sentence with file, field and rule; selections are sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.check import check_values
from kwiki_kernels.errors import TaskError, TooLargeError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.examination import check_room
from kwiki_kernels.inputs import expected_outputs, memory_bytes
from kwiki_kernels.selection import check_selection
from kwiki_kernels.task import load_task, parse_task
from kwiki_kernels.terms import load_reference
from kwiki_kernels.tolerance import ContestTolerance, Tolerance

from tests.kernels.judge_samples import DEFINITION, task_files
from tests.kernels.shrunk_tasks import TASKS

CONTEST = Tolerance(selection=True, contest=ContestTolerance(atol=0.01, rtol=0.01))


def broken(path: str, value: Any) -> str:
    """The sample's definition with the field at a dotted path replaced."""
    definition = json.loads(json.dumps(DEFINITION))
    *folders, last = path.split(".")
    field = definition
    for name in folders:
        field = field[name]
    field[last] = value
    return json.dumps(definition)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("inputs.x.shape", ["rows", "depth"], "inputs.x.shape: there is no axis 'depth'"),
        ("inputs.x.dtype", "bfloat61", "inputs.x.dtype: unknown dtype 'bfloat61'"),
        ("outputs", {}, "outputs: there is none"),
        ("outputs.y.shape", None, "outputs.y.shape: the judge knows only tensors"),
        ("outputs.x", {"shape": ["rows"], "dtype": "float32"}, "'x' is both an input and an output"),
        ("axes.rows", {"type": "const", "value": -1}, "axes.rows.const.value: Input should be greater than"),
        ("axes.rows", {"type": "vary"}, "axes.rows: Input tag 'vary'"),
        ("constraints", ["rows >"], "constraints: 'rows >' is no expression"),
        ("constraint", [], "unknown key 'constraint': is 'constraints' meant?"),
        ("name", 7, "name: Input should be a valid string"),
    ],
)
def test_a_malformed_definition_is_refused_with_field_and_rule(path: str, value: Any, problem: str) -> None:
    with pytest.raises(TaskError) as refused:
        parse_task(task_files(**{"definition.json": broken(path, value)}), {}, origin="mine")
    assert str(refused.value).startswith("mine/definition.json: ")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"uuid": "a", "axes": {"rows": 4}}, "axes lacks 'width'"),
        ({"uuid": "a", "axes": {"rows": 4, "width": -8}}, "axes.width: Input should be greater than"),
        ({"uuid": "a", "axes": {"rows": 4, "width": 8, "depth": 2}}, "axes.depth contradicts the definition"),
        (
            {"uuid": "a", "axes": {"rows": 4, "width": 8, "lanes": 16}},
            "axes.lanes contradicts the definition",
        ),
        ({"uuid": "a", "axes": {"rows": 4, "width": 7}}, "constraint 'width % lanes == 0' does not hold"),
        ({"axes": {"rows": 4, "width": 8}}, "uuid: Field required"),
        ({"uuid": "good", "axes": {"rows": 4, "width": 8}}, "uuid 'good' appears twice"),
        ({"uuid": "a", "axes": {"rows": 4, "width": 8}}, "workload a gives no value for the scalar 'eps'"),
        (
            {"uuid": "a", "axes": {"rows": 4, "width": 8}, "inputs": {"eps": 0.1, "x": {"type": "magic"}}},
            "input 'x' is of type 'magic'; a tensor is random or safetensors",
        ),
        (
            {"uuid": "a", "axes": {"rows": 4, "width": 8}, "inputs": {"x": {"type": "safetensors"}}},
            "inputs.x is of type 'safetensors' and needs a 'path'",
        ),
        ([1, 2], "Input should be a valid dictionary"),
    ],
)
def test_axes_that_contradict_the_definition_are_refused_with_their_line(row: Any, problem: str) -> None:
    definition = json.loads(broken("constraints", ["width % lanes == 0"]))
    definition["axes"]["lanes"] = {"type": "const", "value": 8}
    eps = {"eps": {"type": "scalar", "value": 0.1}}
    good = json.dumps({"uuid": "good", "axes": {"rows": 1, "width": 8, "lanes": 8}, "inputs": eps})
    files = {"definition.json": json.dumps(definition), "workloads.jsonl": f"{good}\n{json.dumps(row)}"}
    with pytest.raises(TaskError) as refused:
        parse_task(task_files(**files), {}, origin="mine")
    assert str(refused.value).startswith("mine/workloads.jsonl:2: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (
            "tolerance.json",
            '{"relative_l2": {"z": 0.1}}',
            "tolerance.json: relative_l2: there is no output 'z'",
        ),
        (
            "tolerance.json",
            '{"matched_ratio": 2}',
            "tolerance.json: matched_ratio: Extra inputs are not permitted",
        ),
        ("tolerance.json", '{"contest": {"atol": 1}}', "tolerance.json: contest.rtol: Field required"),
        ("inputs.py", "import nowhere", "inputs.py cannot be used: ModuleNotFoundError"),
        ("inputs.py", "made = 1", "inputs.py defines neither layout"),
        ("tolerance.json", '{"selection": true}', "a selection needs candidates"),
        ("workloads.jsonl", "\n", "mine/workloads.jsonl lists no workload"),
        (
            "knobs.json",
            '{"knobs": {"a": {"values": [1]}}, "default": {"a": 2}}',
            "knobs.json: default: knob 'a' cannot be 2; allowed: 1",
        ),
        (
            "knobs.json",
            '{"knobs": {"a": {"values": [1]}}, "default": {"a": 1}, "constraints": ["a >"]}',
            "knobs.json: constraint 'a >' is no expression",
        ),
        (
            "knobs.json",
            '{"knobs": {"a": {"values": [1]}}, "default": {"a": 1}, "constraints": ["a * row > 0"]}',
            "knobs.json: constraint 'a * row > 0': no knob or axis is 'row'",
        ),
        (
            "reference.py",
            "def run(x, eps, z, w): ...",
            "the reference cannot be used: run takes 4 parameters",
        ),
    ],
)
def test_a_malformed_task_file_is_refused_with_its_name(
    file: str, text: str, problem: str, tmp_path: Any
) -> None:
    with pytest.raises(TaskError) as refused:
        load_reference(parse_task(task_files(**{file: text}), {}, origin="mine"), tmp_path)
    assert problem in str(refused.value)


def test_a_byte_order_mark_and_crlf_change_no_task(tmp_path: Path) -> None:
    for name, text in task_files().items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_task(tmp_path).definition == parse_task(task_files(), {}, origin="sample").definition


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    for name, text in task_files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "baseline.py").write_bytes("# caf\u00e9".encode("latin-1"))
    with pytest.raises(TaskError, match=r"baseline\.py is not UTF-8 text: .* at byte 5$"):
        load_task(tmp_path)


NOT_A_NUMBER = """
import torch

def values(axes, generator, spread):
    x = torch.ones(axes["rows"], axes["width"], dtype=torch.bfloat16)
    x[-1, -1] = float("nan")
    return {"x": x}
"""


def test_nan_in_inputs_is_the_tasks_fault(tmp_path: Path) -> None:
    task = parse_task(task_files(**{"inputs.py": NOT_A_NUMBER}), {}, origin="mine")
    _, terms = load_reference(task, tmp_path)
    with pytest.raises(
        TaskError, match=r"the task's inputs\.py makes 'x' with NaN, from which nothing right"
    ):
        terms.inputs(task.definition, task.workload("small"), 0, "cpu", 1.0)


def test_a_reference_of_nothing_but_nan_is_the_tasks_fault() -> None:
    """Outputs are marked with NaN before each check: what was never written would pass."""
    with pytest.raises(TaskError, match="reference gives nothing but NaN as output number 2"):
        expected_outputs(lambda x: (x, x * torch.nan), [torch.ones(3)])
    (some,) = expected_outputs(lambda x: x / x, [torch.tensor([0.0, 1.0])])
    assert some.isnan().tolist() == [True, False]


def test_a_workload_larger_than_the_gpu_is_named_before_anything_is_allocated() -> None:
    task = load_task(TASKS / "softmax")
    workload = task.workload("w8192-r16384")
    assert memory_bytes(task.definition, workload) == 3 * 2**28
    check_room(task.definition, workload, 3 * 2**28)
    with pytest.raises(TooLargeError, match=r"takes at least 0.8 GB of device memory, 0.5 GB are free"):
        check_room(task.definition, workload, 2**29)


def test_a_reference_that_runs_out_of_memory_is_no_fault_of_the_task() -> None:
    def reference(_: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.\nmore")

    with pytest.raises(TooLargeError, match=r"its reference does not fit: CUDA out of memory\.$"):
        expected_outputs(reference, [torch.zeros(1)])


SLOTS = torch.tensor([[64, 65, 66, 67, 7, -1]], dtype=torch.int32)
SCORES = torch.tensor([[1.0, 5.0, -2.0, 4.999, 3.0, torch.inf]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("chosen", "status", "log"),
    [
        ([65, 67, 7], Status.PASSED, ""),
        ([7, 65, 67], Status.PASSED, ""),
        ([65, 67, 64], Status.INCORRECT_NUMERICAL, "a chosen score lies 2 below"),
        ([65, 65, 7], Status.INCORRECT_NUMERICAL, "row 0: a slot is chosen twice"),
        ([65, 67, 8], Status.INCORRECT_NUMERICAL, "row 0: slot 8 is not among those of the row"),
        ([65, 67, -2], Status.INCORRECT_NUMERICAL, "row 0: slot -2 is not among"),
        ([65, 67, -1], Status.INCORRECT_NUMERICAL, "row 0: 2 slots chosen, must be 3"),
        ([7, 64, 65, 66, 67, -1, -1], Status.PASSED, ""),
        ([7, 64, 65, 66, 67, -1, 7], Status.INCORRECT_NUMERICAL, "row 0: 6 slots chosen, must be 5"),
    ],
)
def test_a_selection_is_a_set_of_the_best(chosen: list[int], status: Status, log: str) -> None:
    finding = check_selection("best", torch.tensor([chosen], dtype=torch.int32), SLOTS, SCORES, CONTEST)
    assert (finding.status, finding.contest_passed) == (status, status is Status.PASSED)
    assert log in finding.log


def test_near_ties_may_go_either_way() -> None:
    chosen = torch.tensor([[67]], dtype=torch.int32)
    finding = check_selection("best", chosen, SLOTS, SCORES, CONTEST)
    assert finding.status is Status.PASSED
    assert finding.error is not None
    assert finding.error.max_abs == pytest.approx(0.001)


def test_a_row_without_candidates_chooses_nothing() -> None:
    nothing = torch.full((1, 3), -1, dtype=torch.int32)
    assert check_selection("best", nothing, nothing, SCORES[:, :3], CONTEST).status is Status.PASSED
    assert check_selection("best", nothing + 1, nothing, SCORES[:, :3], CONTEST).status is not Status.PASSED


def test_the_contests_verdict_stands_beside_ours() -> None:
    """The contest lets zeros pass where outputs are small, and a tenth of the output be anything."""
    task = load_task(TASKS / "gdn_decode")
    small = [
        torch.full((1, 1, 8, 128), 5e-3, dtype=torch.float64),
        torch.full((1, 8, 128, 128), 5e-3).double(),
    ]
    zeros = [torch.zeros(small[0].shape, dtype=torch.bfloat16), torch.zeros(small[1].shape)]
    finding = check_values(task.definition, zeros, small, task.tolerance)
    assert (finding.status, finding.contest_passed) == (Status.INCORRECT_NUMERICAL, True)

    moe = load_task(TASKS / "moe_fp8")
    expected = 1e4 * torch.randn(4, 7168, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    output = expected.bfloat16()
    output[:, :700] = 0
    finding = check_values(moe.definition, [output], [expected], moe.tolerance)
    assert (finding.status, finding.contest_passed) == (Status.INCORRECT_NUMERICAL, True)
    output[:, :800] = 0
    assert check_values(moe.definition, [output], [expected], moe.tolerance).contest_passed is False


def test_one_infinity_fails_the_contest() -> None:
    task = load_task(TASKS / "moe_fp8")
    expected = torch.ones(1, 7168, dtype=torch.float64)
    output = expected.bfloat16()
    output[0, 0] = torch.inf
    assert check_values(task.definition, [output], [expected], task.tolerance).contest_passed is False
