"""Budgets and constraints are kept in code, and what they forbid is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_agent.cli import main
from kwiki_agent.contract import Model
from kwiki_agent.graph import drive
from kwiki_agent.policy.accounting import Models
from kwiki_agent.report_sections import repeat_options
from kwiki_agent.runs import RunFolder
from kwiki_agent.start import new_run
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.task import load_task

from tests.agent.claude import KEY, served
from tests.agent.toy import MakeLoop


def report_of(make_toy_loop: MakeLoop, **contract: object) -> str:
    loop = make_toy_loop(use_cards=False, **contract)
    assert drive(loop) is None
    return (loop.run.path / "report.md").read_text()


@pytest.mark.parametrize(
    ("budget", "sentence"),
    [
        ({"max_wall_s": 0.001}, "the budget of 0 s of wall time is spent"),
        ({"max_gpu_s": 0.02}, "the budget of 0 s of GPU time is spent"),
        ({"max_judge_s": 0.02}, "the budget of 0 s of building and judging is spent"),
    ],
)
def test_a_spent_budget_of_time_ends_the_run_after_its_round(
    make_toy_loop: MakeLoop, budget: dict[str, object], sentence: str
) -> None:
    report = report_of(make_toy_loop, **budget)
    assert f"The run ended because {sentence}" in report
    assert "`c0005`" not in report, "the first round has four candidates"


def test_a_contract_that_nothing_can_meet_ends_with_a_report(make_toy_loop: MakeLoop) -> None:
    report = report_of(make_toy_loop, fixed_knobs={"width": 16, "depth": 8})
    assert "No candidate passed. The run ended because nothing new was proposed." in report


def test_the_report_says_what_the_loop_itself_took(make_toy_loop: MakeLoop) -> None:
    report = report_of(make_toy_loop, max_candidates=4)
    assert "## What it cost" in report
    assert "the loop's own" in report


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--language", "Triton"],
            "the seed that the tuner would vary imports cutlass, but the contract wants",
        ),
        (["--imports", "torch"], "imports cutlass, which the contract does not allow"),
        (["--max-cost", "-1"], "the contract's max_cost_usd: Input should be greater than 0"),
    ],
)
def test_what_the_contract_forbids_is_refused_before_anything_is_written(
    task_dir: Path,
    wiki: Wiki,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    (task_dir / "kernel.py").write_text("import cutlass\n\n\ndef build(axes, knobs):\n    return None\n")
    runs = tmp_path / "runs"
    command = ["run", str(task_dir), "--arch", "sm_90a", "--wiki", str(wiki.root), "--runs", str(runs)]
    assert main([*command, *options]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not runs.exists()


def test_the_command_in_the_report_asks_for_the_same_contract(
    task_dir: Path, wiki: Wiki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delenv("KERNEL_AGENT_EFFORT", raising=False)
    limits = {
        "language": "Triton", "allowed_imports": ("triton", "torch"), "min_gain": 0.02, "max_gpu_s": 100.0,
        "max_tokens": 5000, "max_judge_s": 200.0, "max_wall_s": 300.0,
    }  # fmt: skip
    first = new_run(
        str(task_dir), runs_dir=tmp_path, run_id="first", arch="sm_90a", workloads="n1,n64", screen=1,
        wiki=wiki.root, policy="claude", max_candidates=7, batch=3, seed=5, use_cards=False, stop_at=2.5,
        fixed_knobs=["width=4"], models=Models(Model(name="m", effort="low"), None), limits=limits,
    ).contract  # fmt: skip
    _, *options = repeat_options(first, load_task(task_dir))
    places = ["--wiki", str(wiki.root), "--runs", str(tmp_path), "--id", "again"]
    with served([], monkeypatch):
        assert main(["run", str(task_dir), *options, *places]) == 1, "the model says nothing"
    again = RunFolder(tmp_path / "again").contract
    assert again.model_copy(update={"run_id": "first", "created": first.created}) == first


def test_a_run_that_lost_its_contract_is_named_and_the_others_are_listed(
    make_toy_loop: MakeLoop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = make_toy_loop()
    lost = make_toy_loop(run_id="lost")
    (lost.run.path / "contract.json").unlink()
    assert main(["runs", "--runs", str(tmp_path / "runs")]) == 1
    printed = capsys.readouterr()
    assert kept.run.id in printed.out
    assert printed.err == "kernel-agent: run 'lost' has no contract.json: put it back, or begin anew\n"
