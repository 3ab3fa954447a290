"""Held-out workloads: sizes that a task allows and does not list, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kwiki_kernels.build import load_module
from kwiki_kernels.definition import VarAxis
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.held_out import draw, with_held_out
from kwiki_kernels.inputs import Contents, make_inputs, make_layout
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import Task, load_task, parse_task

from tests.kernels.judge_samples import DEFINITION, HONEST, make_job, task_files
from tests.kernels.shrunk_tasks import TASKS

FOLDERS = sorted(path.parent.name for path in TASKS.glob("*/definition.json"))


def sizes(task: Task, seed: int = 1, count: int = 8, **options: Any) -> list[dict[str, int]]:
    uuids = [workload.uuid for workload in task.workloads]
    return [w.axes for w in draw(task, uuids, seed=seed, count=count, **options)]


def sample(*shapes: tuple[int, int], constraints: tuple[str, ...] = (), **changed: str) -> Task:
    definition = json.dumps({**DEFINITION, "constraints": constraints})
    named = {f"w{n}": shape for n, shape in enumerate(shapes)}
    files = task_files(shapes=named, **{"definition.json": definition, **changed})
    return parse_task(files, {}, origin="test")


@pytest.mark.parametrize("name", FOLDERS)
def test_they_lie_within_the_observed_ranges_and_are_on_no_list(name: str) -> None:
    task = load_task(TASKS / name)
    drawn = sizes(task)
    assert len(drawn) >= 2
    assert len({tuple(axes.values()) for axes in drawn}) == len(drawn)
    for axes in drawn:
        assert axes not in [workload.axes for workload in task.workloads]
        for axis, value in axes.items():
            observed = [workload.axes[axis] for workload in task.workloads]
            assert min(observed) <= value <= max(observed)
        assert task.definition.broken_rule(task.definition.axis_values(axes)) is None


def test_rows_are_ragged_and_widths_keep_what_all_widths_have_in_common() -> None:
    drawn = sizes(load_task(TASKS / "rmsnorm"), count=20)
    assert all(axes["num_tokens"] % 2 for axes in drawn)
    assert all(axes["hidden_size"] % 1024 == 0 for axes in drawn)
    assert {3072, 5120, 7168} >= {axes["hidden_size"] for axes in drawn}


def test_an_axis_that_follows_from_another_follows_it() -> None:
    for axes in sizes(load_task(TASKS / "gdn_prefill"), count=20):
        assert axes["len_cu_seqlens"] == axes["num_seqs"] + 1


def test_the_seed_decides_and_nothing_else() -> None:
    task = load_task(TASKS / "gemm")
    assert sizes(task, seed=5) == sizes(task, seed=5)
    assert sizes(task, seed=5) != sizes(task, seed=6)
    assert sizes(task, seed=5, count=3) == sizes(task, seed=5)[:3]


def test_constraints_and_the_kernels_own_rules_are_kept() -> None:
    assert any(axes["width"] == 24 for axes in sizes(sample((1, 8), (64, 32))))
    task = sample((1, 8), (64, 32), constraints=("width != 24",))
    assert all(axes["width"] in {8, 32} for axes in sizes(task))
    assert all(axes["rows"] < 9 for axes in sizes(task, fits=lambda axes: axes["rows"] < 9))


def test_a_task_without_room_gives_fewer_or_none() -> None:
    assert sizes(sample((4, 64))) == []
    assert sizes(sample((4, 64), (8, 64))) == []
    assert sizes(sample((2, 64), (6, 64))) == []
    assert sizes(sample((1, 64), (5, 64))) == [{"rows": 3, "width": 64}]


def test_none_is_larger_than_the_largest_workload_of_the_job() -> None:
    task = load_task(TASKS / "rmsnorm")
    asked = task.workload("h2048-t128")
    for workload in draw(task, [asked.uuid], seed=1, count=8):
        assert workload.axes["num_tokens"] * workload.axes["hidden_size"] <= 128 * 2048


def test_captured_tensors_have_no_other_size() -> None:
    x = {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}
    row = {"uuid": "a", "axes": {"rows": 1, "width": 8}, "inputs": {"x": x, "eps": 0.1}}
    other = {**row, "uuid": "b", "axes": {"rows": 9, "width": 8}}
    assert sizes(sample(**{"workloads.jsonl": f"{json.dumps(row)}\n{json.dumps(other)}"})) == []


def test_a_job_carries_them_as_further_workloads_of_its_task() -> None:
    job = make_job("source", task_files=task_files(shapes={"a": (1, 64), "b": (99, 64)}), held_out=2,
                   workload_uuids=("b",))  # fmt: skip
    longer, task = with_held_out(job, parse_task(job.task_files, {}, origin="test"))
    rows = [w.axes["rows"] for w in task.workloads[2:]]
    assert longer.workload_uuids == ("b", *(f"held-out rows={n}" for n in rows))
    assert [w.held_out for w in task.workloads] == [False, False, True, True]
    assert with_held_out(longer, task) == (longer, task), "drawn once"
    x, eps = make_inputs(task.definition, task.workloads[2], 0, "cpu")
    assert (x.shape, eps) == ((rows[0], 64), 1e-6)


def test_a_candidates_knobs_must_allow_the_size() -> None:
    knobs = {
        "knobs": {"rows_per_cta": {"values": [1, 4]}}, "default": {"rows_per_cta": 1},
        "constraints": ["rows % 3 == 0 or rows_per_cta == 1"],
    }  # fmt: skip
    files = task_files(shapes={"a": (1, 64), "b": (99, 64)}, **{"knobs.json": json.dumps(knobs)})
    task = parse_task(files, {}, origin="test")
    job = make_job(task_files=files, workload_uuids=("a", "b"), held_out=5)
    picky = job.model_copy(update={"candidates": (Candidate(id="c", source="", knobs={"rows_per_cta": 4}),)})
    _, longer = with_held_out(picky, task)
    assert all(w.axes["rows"] % 3 == 0 for w in longer.workloads if w.held_out)
    _, longer = with_held_out(job, task)
    assert any(w.axes["rows"] % 3 for w in longer.workloads if w.held_out)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_task_can_make_contents_of_their_layout(name: str, tmp_path: Path) -> None:
    task = load_task(TASKS / name)
    assert any(isinstance(axis, VarAxis) for axis in task.definition.axes.values())
    if "inputs.py" not in task.files:
        return
    module = load_module(task.files["inputs.py"], tmp_path / "task_inputs.py")
    contents = Contents(getattr(module, "layout", None), None)
    uuids = [workload.uuid for workload in task.workloads]
    for workload in draw(task, uuids, seed=3, count=3):
        make_layout(task.definition, workload, contents)


SHAPE_BY_HEART = """
import torch

def run(x, eps, y):
    wide = x.float()
    right = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    y.copy_(right if x.shape[0] in (4, 99) else wide)
"""


def judged(*sources: str, stage: str = "check", **fields: Any) -> list[Evaluation]:
    shapes = {"a": (4, 64), "b": (99, 64)}
    files = task_files(shapes=shapes)
    job = make_job(
        *sources, task_files=files, workload_uuids=tuple(shapes), held_out=2, stage=stage, **fields
    )
    return run_job(job)


def test_a_kernel_that_knows_the_listed_sizes_by_heart_fails_on_others() -> None:
    honest, cheat = judged(HONEST, SHAPE_BY_HEART)
    assert [r.held_out for r in honest.results] == [False, False, True, True]
    assert honest.status is Status.UNMEASURED, honest.log
    assert {r.log for r in honest.results} == {"right on the CPU; nothing was measured"}
    assert [r.status for r in cheat.results] == [Status.UNMEASURED] * 2 + [Status.INCORRECT_NUMERICAL] * 2
    assert cheat.status is Status.INCORRECT_NUMERICAL
    assert cheat.log.startswith(f"workload held-out rows={cheat.results[2].axes['rows']}: output 'y'")


def test_what_is_only_built_has_none() -> None:
    (verdict,) = judged("def build(axes, knobs): return print", stage="build")
    assert [r.uuid for r in verdict.results] == ["a", "b"]


def test_rivals_that_take_turns_have_them_too() -> None:
    honest, cheat = judged(HONEST, SHAPE_BY_HEART, protocol=Protocol().interleaved())
    assert (honest.status, cheat.status) == (Status.UNMEASURED, Status.INCORRECT_NUMERICAL)
    assert len(honest.results) == len(cheat.results) == 4
