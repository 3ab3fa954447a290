"""A fork goes on from the middle of another run, keeps what was known there, and leaves the other alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kwiki_agent.contract import AgentError
from kwiki_agent.fork import fork
from kwiki_agent.graph import drive, locate
from kwiki_agent.policy.external import SUBMISSION, External
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import history

from tests.agent.toy import FormulaExecutor, MakeLoop


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def ids(run: RunFolder) -> list[str]:
    return [candidate.id for candidate in run.candidates()]


def test_a_fork_keeps_what_was_known_and_tries_something_else(make_toy_loop: MakeLoop) -> None:
    first = make_toy_loop(use_cards=False, search_only=True)
    drive(first)
    before = contents(first.run.path)
    new = fork(first.run, "c0003", new_id="again", changes={})
    assert ids(new) == ids(first.run)[:4]
    executor = FormulaExecutor()
    loop = make_toy_loop(executor, run=new)
    assert drive(loop) is None
    assert not any("r001" in judged for judged in executor.judged)
    assert history(new)[:4] == [
        replace(t, job_id=t.job_id and t.job_id.replace("toy-run", "again")) for t in history(first.run)[:4]
    ]
    assert [t.candidate.knobs for t in history(new)[4:8]] != [
        t.candidate.knobs for t in history(first.run)[4:8]
    ]
    assert new.contract.forked_from == "toy-run/c0003"
    assert (new.path / "report.md").exists()
    assert contents(first.run.path) == before


def test_a_fork_of_the_last_round_goes_on_where_the_run_stopped(make_toy_loop: MakeLoop) -> None:
    first = make_toy_loop(use_cards=False, search_only=True)
    drive(first)
    new = fork(first.run, ids(first.run)[-1], new_id=None, changes={"max_candidates": 16})
    drive(make_toy_loop(run=new))
    assert len(ids(new)) > len(ids(first.run))


def test_a_fork_with_a_larger_budget_searches_on(make_toy_loop: MakeLoop) -> None:
    first = make_toy_loop(use_cards=False, max_candidates=4)
    drive(first)
    for candidates, phase in ((4, "ablate"), (8, "search")):
        new = fork(first.run, "c0004", new_id=f"of-{candidates}", changes={"max_candidates": candidates})
        assert locate(make_toy_loop(run=new)).state["phase"] == phase


def test_a_person_takes_over_what_a_tuner_began(make_toy_loop: MakeLoop) -> None:
    first = make_toy_loop(use_cards=False, search_only=True)
    drive(first)
    new = fork(first.run, "c0004", new_id=None, changes={"policy": "external"})
    loop = replace(make_toy_loop(run=new), policy=External(new))
    assert drive(loop) == SUBMISSION
    assert locate(loop).state["round"] == 1


def test_what_cannot_be_forked_is_said_in_one_sentence(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(use_cards=False, search_only=True, max_candidates=4)
    with pytest.raises(AgentError, match="no candidate 'c0001'"):
        fork(loop.run, "c0001", new_id=None, changes={})
    drive(loop)
    fork(loop.run, "c0001", new_id="taken", changes={})
    with pytest.raises(AgentError, match="run 'taken' exists already"):
        fork(loop.run, "c0001", new_id="taken", changes={})
