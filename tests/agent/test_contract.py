"""Budgets and constraints are kept in code, and what they forbid is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_agent.cli import main
from kwiki_agent.graph import drive
from kwiki_ingest.wiki import Wiki

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
