"""Our files in the hands of flashinfer-bench: it reads them, and gives them back unchanged."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kwiki_kernels.evaluation import Environment, ErrorStats, Evaluation, Status, Timing, WorkloadResult
from kwiki_kernels.inputs import expected_outputs
from kwiki_kernels.job import Candidate, Rule
from kwiki_kernels.task import Task, load_task
from kwiki_kernels.terms import load_reference
from kwiki_kernels.trace import ENTRY, export, solution_row, trace_rows

from tests.kernels.shrunk_tasks import SMALL, TASKS

ERROR = ErrorStats(max_abs=0.5, max_rel=0.25, relative_l2=0.001)
OURS_ALONE = {Status.REJECTED, Status.UNMEASURED}


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own imports
        return pytest.importorskip("flashinfer_bench", reason="pip install --no-deps flashinfer-bench==0.1.2")


def candidate(source: str = "def run(hidden_states, weight, output): ...") -> Candidate:
    return Candidate(id="c1", source=source, knobs={"threads": 64}, intent="one row a CTA")


def verdict(task: Task, statuses: list[Status]) -> Evaluation:
    timing = Timing(timer="cuda_graph", device_us=((4.0, 5.0, 6.0),), host_us=9.0)
    results = tuple(
        WorkloadResult(
            uuid=workload.uuid,
            axes=task.definition.axis_values(workload.axes),
            status=status,
            log=f"seen {status}",
            error=ERROR if status is Status.PASSED else None,
            timing=timing if status is Status.PASSED else None,
        )
        for workload, status in zip(task.workloads, statuses, strict=False)
    )
    return Evaluation(
        candidate_id="c1", code_hash="0", task=task.name, arch="sm_90a", status=Status.PASSED,
        results=results, environment=Environment(gpu="NVIDIA H200", driver=None, versions={"torch": "2.11"}),
        seed=0, job_id="j", created="2026-11-30T00:00:00Z",
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_task_reads_back_with_all_its_workloads(name: str, bench: ModuleType, tmp_path: Path) -> None:
    task = load_task(TASKS / name)
    export(tmp_path, task)
    there = bench.TraceSet.from_path(str(tmp_path))
    definition, op = there.definitions[task.name], task.definition.op_type
    assert definition.const_axes | dict.fromkeys(definition.var_axes) == {
        axis: getattr(spec, "value", None) for axis, spec in task.definition.axes.items()
    }
    traces = [
        bench.Trace.model_validate_json(line)
        for line in lines(tmp_path / f"workloads/{op}/{task.name}.jsonl")
    ]
    assert [(t.workload.uuid, t.workload.axes) for t in traces] == [(w.uuid, w.axes) for w in task.workloads]
    assert all(
        t.is_workload_trace() and t.workload.inputs.keys() == task.definition.inputs.keys() for t in traces
    )
    assert [len(there.workloads[task.name])] == [len(task.workloads)]


@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_flashinfer_bench_writes_is_a_task_of_ours(name: str, bench: ModuleType, tmp_path: Path) -> None:
    task = load_task(TASKS / name)
    export(tmp_path / "set", task)
    there = bench.TraceSet.from_path(str(tmp_path / "set"))
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "definition.json").write_text(there.definitions[task.name].model_dump_json())
    rows = [trace.model_dump_json() for trace in there.workloads[task.name]]
    (folder / "workloads.jsonl").write_text("\n".join(rows))
    again = load_task(folder)
    assert again.reference == task.reference
    assert [(w.uuid, w.axes) for w in again.workloads] == [(w.uuid, w.axes) for w in task.workloads]
    optional = {spec.model_copy(update={"optional": False}) for spec in task.definition.inputs.values()}
    assert set(again.definition.inputs.values()) == optional


def test_its_builder_runs_our_reference_in_float32(bench: ModuleType, tmp_path: Path) -> None:
    task = load_task(TASKS / "gdn_decode")
    export(tmp_path, task)
    definition = bench.TraceSet.from_path(str(tmp_path)).definitions[task.name]
    runnable = bench.compile.BuilderRegistry.get_instance().build_reference(definition)
    reference, terms = load_reference(task, tmp_path)
    inputs = terms.inputs(task.definition, task.workloads[0], 0, "cpu", 1.0)
    output, state = runnable(*inputs)
    expected = expected_outputs(reference, inputs)
    assert (output.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    assert torch.allclose(state.double(), expected[1], atol=1e-5)


def test_every_verdict_becomes_a_valid_trace(bench: ModuleType, tmp_path: Path) -> None:
    task = load_task(TASKS / "rmsnorm")
    statuses = list(Status)
    first = task.workloads[0].uuid
    export(tmp_path, task, [candidate()], trace_rows(task, verdict(task, statuses), {first: 10.0}))
    there = bench.TraceSet.from_path(str(tmp_path))
    evaluations = [trace.evaluation for trace in there.traces[task.name]]
    words = [e.status.value for e in evaluations]
    assert words == [
        (Status.RUNTIME_ERROR if s is Status.REJECTED else s).value
        for s in statuses
        if s is not Status.UNMEASURED
    ]
    assert {s.value for s in statuses if s not in OURS_ALONE} == {s.value for s in bench.EvaluationStatus}
    passed = evaluations[0]
    assert (passed.performance.latency_ms, passed.performance.speedup_factor) == (0.005, 2.0)
    assert passed.correctness.extra == {"relative_l2": 0.001, "contest_passed": None}
    assert evaluations[words.index("INCORRECT_NUMERICAL")].correctness.max_absolute_error == float("inf")
    assert evaluations[words.index("TIMEOUT") + 1].log == "REJECTED: seen REJECTED"
    assert [s.description for s in there.solutions[task.name]] == ["one row a CTA"]


BUILT = """
STATIC_AXES = ("hidden_size",)

def build(axes, knobs):
    def launch(hidden_states, weight, output):
        output.fill_(axes["hidden_size"] + knobs["threads"] / 128)
    return launch
"""


def test_a_candidate_with_build_runs_from_its_solution(bench: ModuleType, tmp_path: Path) -> None:
    task = load_task(TASKS / "rmsnorm")
    rules = (Rule(axes={"num_tokens": 2}, knobs={"threads": 32}),)
    row = solution_row(task, candidate(BUILT).model_copy(update={"rules": rules}))
    export(tmp_path, task, [candidate(BUILT)])
    definition = bench.TraceSet.from_path(str(tmp_path)).definitions[task.name]
    runnable = bench.compile.BuilderRegistry.get_instance().build(
        definition, bench.Solution.model_validate(row)
    )
    for tokens, expected in ((2, 8.25), (3, 8.5)):
        output = torch.zeros(tokens, 8)
        runnable.call_destination_passing(torch.zeros(tokens, 8), torch.zeros(8), output)
        assert output.eq(expected).all()


def lines(path: Path) -> list[str]:
    rows = path.read_text().splitlines()
    assert all(isinstance(json.loads(row), dict) for row in rows)
    return rows


def test_the_entry_is_valid_python() -> None:
    filled: dict[str, Any] = {"knobs": {}, "rules": [], "parameters": "x, y", "axes": '"n": x.shape[0]'}
    compile(ENTRY.format(**filled), "entry.py", "exec")
