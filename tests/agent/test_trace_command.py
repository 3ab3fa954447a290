"""A run's verdicts in the hands of flashinfer-bench."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from kwiki_agent.cli import main
from kwiki_agent.graph import drive
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import history
from kwiki_kernels.evaluation import Status

from tests.agent.toy import FormulaExecutor, MakeLoop


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own imports
        return pytest.importorskip("flashinfer_bench", reason="pip install --no-deps flashinfer-bench==0.1.2")


@pytest.fixture
def run(make_toy_loop: MakeLoop) -> RunFolder:
    """A finished run with one candidate that failed."""
    executor = FormulaExecutor()
    executor.failing["c002"] = Status.RUNTIME_ERROR
    loop = make_toy_loop(executor, use_cards=False)
    drive(loop)
    return loop.run


def test_a_line_for_each_measured_candidate_and_workload(
    run: RunFolder, bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(run.path)]) == 0
    traces = [bench.Trace.model_validate_json(line) for line in capsys.readouterr().out.splitlines()]
    measured = [trial for trial in history(run) if trial.kind == "measured"]
    assert len(traces) == 3 * len(measured) > 0
    assert {trace.solution for trace in traces} == {trial.candidate.id for trial in measured}
    speedups = [trace.evaluation.performance.speedup_factor for trace in traces]
    assert all(speedup > 0 for speedup in speedups), "each has a baseline to be read against"


def test_a_data_set_reads_back_with_task_kernels_and_traces(
    run: RunFolder, bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", str(run.path), "--dataset", str(tmp_path / "set")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'set'}\n"
    there = bench.TraceSet.from_path(str(tmp_path / "set"))
    assert there.definitions.keys() == {"toy"}
    assert len(there.workloads["toy"]) == 3
    assert {s.name for s in there.solutions["toy"]} == {c.id for c in run.candidates()}
    assert {t.solution for t in there.traces["toy"]} <= {s.name for s in there.solutions["toy"]}


def test_a_run_that_only_compiled_has_nothing_to_trace(
    make_toy_loop: MakeLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = make_toy_loop(FormulaExecutor(measures=False), use_cards=False)
    drive(loop)
    assert main(["trace", str(loop.run.path)]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == "kernel-agent: run 'toy-run' has no verdict to trace: nothing was measured and nothing failed\n"
    )


def test_a_run_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "absent", "--runs", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("kernel-agent: no run 'absent' in ")


def test_lines_are_json_that_other_tools_read(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", str(run.path)])
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first.keys() == {"definition", "solution", "workload", "evaluation"}
