"""Rivals take turns, and one that fails in its turn spoils nothing for the others. Real processes, no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_kernels.account import account
from kwiki_kernels.course import Span
from kwiki_kernels.evaluation import Conditions, Evaluation, Status
from kwiki_kernels.job import Candidate, Job, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.sensors import Reading, conditions, count_others, disturbance

from tests.kernels.judge_samples import HONEST, make_job, task_files

TURNS = Protocol(warmup=0, iterations=4, rounds=4, order="interleaved", judge_timeout_s=60)
"""On the CPU: one verified call a round."""
NOTES_ITS_CALLS = """
import torch
calls = []

def run(x, eps, y):
    calls.append(1)
    open({mark!r}, "a").write({name!r})
    {deed}
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps))
"""


def contest(mark: Path, deeds: dict[str, str], **fields: object) -> Job:
    """Candidates that write their names into `mark` at each call, and then do a deed."""
    candidates = tuple(
        Candidate(id=name, source=NOTES_ITS_CALLS.format(mark=str(mark), name=name, deed=deed))
        for name, deed in deeds.items()
    )
    defaults: dict[str, object] = {"workload_uuids": ("small",), "stage": "check", "protocol": TURNS}
    return make_job(candidates=candidates, **{**defaults, **fields})


def statuses(verdicts: list[Evaluation]) -> dict[str, Status]:
    return {verdict.candidate_id: verdict.status for verdict in verdicts}


def test_rivals_are_prepared_and_then_take_turns_forth_and_back(tmp_path: Path) -> None:
    mark = tmp_path / "calls"
    verdicts = run_job(contest(mark, {"a": "", "b": "", "c": ""}))
    assert mark.read_text() == "aabbcc" + "abccba" * 2
    assert set(statuses(verdicts).values()) == {Status.UNMEASURED}
    assert {verdict.results[0].log for verdict in verdicts} == {"right on the CPU; nothing was measured"}


def test_in_sequence_each_candidate_has_all_its_rounds_before_the_next_begins(tmp_path: Path) -> None:
    mark = tmp_path / "calls"
    sequential = TURNS.model_copy(update={"order": "sequential"})
    run_job(contest(mark, {"a": "", "b": ""}, protocol=sequential), parallel_builds=1)
    assert mark.read_text() == "a" * 6 + "b" * 6


def test_who_dies_hangs_or_turns_wrong_in_a_round_is_out_and_the_others_go_on(tmp_path: Path) -> None:
    mark = tmp_path / "calls"
    deeds = {
        "a": "",
        "d": "len(calls) == 4 and __import__('os')._exit(3)",
        "h": "len(calls) == 5 and __import__('time').sleep(600)",
        "w": "eps = 0.5 if len(calls) == 4 else eps",
    }
    limits = TURNS.model_copy(update={"judge_timeout_s": 3})
    verdicts = run_job(contest(mark, deeds, protocol=limits, task_files=task_files()))
    assert statuses(verdicts) == {
        "a": Status.UNMEASURED,
        "d": Status.RUNTIME_ERROR,
        "h": Status.TIMEOUT,
        "w": Status.INCORRECT_NUMERICAL,
    }
    assert mark.read_text() == "aaddhhww" + "adhw" + "whda" + "ah" + "a"
    assert "exited with code 3 on workload small" in verdicts[1].log


def test_a_wrong_workload_keeps_nobody_from_the_next_one(tmp_path: Path) -> None:
    deeds = {"a": "", "w": "eps = 0.5 if x.shape[0] == 4 else eps"}
    job = contest(tmp_path / "calls", deeds, workload_uuids=("small", "wide"))
    right, wrong = run_job(job)
    assert [result.status for result in wrong.results] == [Status.INCORRECT_NUMERICAL, Status.UNMEASURED]
    assert [result.status for result in right.results] == [Status.UNMEASURED] * 2


def test_verdicts_of_a_contest_that_was_cut_short_are_reached_again_together() -> None:
    job = make_job(HONEST, HONEST, stage="build", protocol=Protocol(order="interleaved"))
    first = {verdict.candidate_id: verdict for verdict in run_job(job)}
    seen: list[str] = []
    run_job(job, there={"c0": first["c0"]}, on_result=lambda verdict: seen.append(verdict.candidate_id))
    assert seen == ["c0", "c1"]
    seen.clear()
    run_job(job, there=first, on_result=lambda verdict: seen.append(verdict.candidate_id))
    assert seen == []


def test_a_comparison_has_an_even_number_of_rounds_so_that_drift_cancels() -> None:
    assert Protocol(rounds=3).interleaved().rounds == 4
    assert Protocol(rounds=5).interleaved().rounds == 6
    assert Protocol().interleaved().order == "interleaved"


def reading(clock: int = 1980, reasons: int = 0, others: int = 0) -> Reading:
    return Reading(sm_clock_mhz=clock, temperature_c=40, power_w=300.0, reasons=reasons, others=others)


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([reading(), reading()], ""),
        ([reading(), reading(1950)], ""),
        ([reading(), reading(1500)], "the SM clock went from 1980 to 1500 MHz"),
        ([reading(), reading(1500, reasons=0x4)], ""),
        ([reading(), reading(reasons=0x20)], "the GPU was slowed down by heat"),
        ([reading(others=1), reading()], "1 other processes computed on the GPU"),
        ([], ""),
    ],
)
def test_what_disturbs_a_measurement_is_said(readings: list[Reading], said: str) -> None:
    assert disturbance(conditions(readings)) == said


def test_conditions_hold_the_extremes_of_all_rounds() -> None:
    assert conditions([reading(1980), reading(1900, reasons=0x4)]) == Conditions(
        sm_clock_mhz=(1900, 1980), temperature_c=40, power_w=300.0, held_back_by=("power cap",)
    )


def test_other_processes_are_told_from_ours_by_id_or_where_ids_say_nothing_by_number() -> None:
    assert count_others([10, 11, 99], ours=[10, 11]) == 1
    assert count_others([5000, 5001], ours=[10, 11]) == 0
    assert count_others([5000, 5001, 5002], ours=[10, 11]) == 1
    assert count_others([], ours=[10]) == 0


def test_time_in_which_something_built_or_ran_is_not_the_judges_own_and_making_a_context_is() -> None:
    spans = [
        Span("build", 1.0, 4.0), Span("build", 2.0, 5.0), Span("open", 6.0, 7.5),
        Span("gpu", 4.0, 7.0), Span("gpu", 8.0, 9.0),
    ]  # fmt: skip
    spent = account(spans, began_s=0.0, ended_s=10.0)
    assert (spent.wall_s, spent.build_s, spent.gpu_s, spent.own_s) == (10.0, 4.0, 4.0, 3.0)
    assert spent.own_share == 0.3


def test_what_a_kernel_imports_is_not_paid_for_at_each_workload() -> None:
    """A quarter of a second each it was, while everything imported was searched for garbage every time."""
    shapes = {f"w{number}": (4, 64) for number in range(20)}
    job = make_job(
        f"from cutlass import cute\n{HONEST}", task_files=task_files(shapes=shapes),
        workload_uuids=tuple(shapes), stage="check", protocol=Protocol(warmup=0, iterations=3),
    )  # fmt: skip
    (verdict,) = run_job(job)
    assert verdict.status is Status.UNMEASURED, verdict.log
    assert verdict.judge_s < 0.1 * len(shapes)
