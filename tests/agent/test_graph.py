"""The loop runs to its report, survives a kill at any node, and writes what it learned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kwiki_agent.contract import AgentError
from kwiki_agent.graph import STEPS, drive
from kwiki_agent.lookup import choose_representatives
from kwiki_agent.loop import Loop
from kwiki_agent.runs import create_run
from kwiki_agent.trials import history, last_verdict
from kwiki_ingest.search.retrieve import search
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.task import load_task

from tests.agent.toy import FormulaExecutor, MakeLoop


def test_every_node_of_the_design_is_a_step() -> None:
    assert [step.__name__ for step in STEPS] == [
        "prepare", "retrieve", "propose", "build", "check",
        "measure", "profile", "decide", "reflect", "finish",
    ]  # fmt: skip


def test_a_run_leaves_a_whole_record(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop()
    assert drive(loop) is None
    names = {path.name for path in loop.run.path.iterdir()}
    assert {
        "run.json", "contract.json", "checkpoint.sqlite", "candidates", "jobs", "candidates.jsonl",
        "benchmark.csv", "timeline.jsonl",
        "retrievals.jsonl", "promotions.jsonl", "lessons.jsonl", "report.md", "progress.svg", "progress.png",
    } <= names  # fmt: skip
    rows = [json.loads(line) for line in (loop.run.path / "candidates.jsonl").read_text().splitlines()]
    assert len(rows) == len(history(loop.run))
    assert {"intent", "knobs", "status", "score", "code_hash"} <= rows[0].keys()


def test_driving_a_finished_run_again_changes_nothing(make_toy_loop: MakeLoop) -> None:
    executor = FormulaExecutor()
    loop = make_toy_loop(executor)
    drive(loop)
    judged = list(executor.judged)
    assert drive(loop) is None
    assert executor.judged == judged


@pytest.mark.parametrize("node", [step.__name__ for step in STEPS])
def test_a_run_killed_in_any_node_goes_on_and_judges_nothing_twice(
    make_toy_loop: MakeLoop, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = FormulaExecutor()
    loop = make_toy_loop(executor, use_cards=False)
    _die_once_after(node, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        drive(loop)
    assert drive(loop) is None
    assert len(executor.judged) == len(set(executor.judged))
    untroubled = make_toy_loop(FormulaExecutor(), run_id="untroubled", use_cards=False)
    drive(untroubled)
    assert [t.candidate.knobs for t in history(loop.run)] == [
        t.candidate.knobs for t in history(untroubled.run)
    ]


def _die_once_after(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node does all its work, and the process ends before the checkpoint of it is written."""
    from kwiki_agent import graph

    step = next(step for step in STEPS if step.__name__ == node)
    deaths = [KeyboardInterrupt()]

    def dying(state: Any, loop: Loop) -> Any:
        changed = step(state, loop)
        if deaths:
            raise deaths.pop()
        return changed

    dying.__name__ = node
    monkeypatch.setattr(graph, "STEPS", tuple(dying if s is step else s for s in STEPS))


class Waiting(FormulaExecutor):
    """Answers nothing until `open` is set: a spool before the GPU machine has worked."""

    open = False

    def collect(self, job_id: str) -> list[Evaluation] | None:
        return super().collect(job_id) if self.open else None


def test_where_the_judge_is_at_home_nothing_is_built_twice(make_toy_loop: MakeLoop) -> None:
    executor = FormulaExecutor()
    executor.failing["c0002"] = Status.COMPILE_ERROR
    loop = replace(make_toy_loop(executor), builder=executor)
    assert drive(loop) is None
    trials = {trial.candidate.id: trial for trial in history(loop.run)}
    assert all(loop.run.build(name) is None for name in trials)
    assert trials["c0002"].status is Status.COMPILE_ERROR
    evidence = json.loads(next(loop.wiki.root.glob("evidence/*.json")).read_text(encoding="utf-8"))
    assert all(entry["registers"] for entry in evidence["candidates"].values())


def test_who_proposes_cannot_know_the_seed_of_a_job(make_toy_loop: MakeLoop, tmp_path: Path) -> None:
    loop = make_toy_loop()
    other = create_run(tmp_path / "other", loop.contract)
    assert loop.run.secret_seed("a") == loop.run.secret_seed("a")
    assert len({loop.run.secret_seed("a"), loop.run.secret_seed("b"), other.secret_seed("a")}) == 3


class WrongOffTheList(FormulaExecutor):
    """Width 8, the fastest, is wrong on workloads that only the confirmation draws."""

    def _evaluate(self, job: Job, candidate: Candidate) -> Evaluation:
        verdict = super()._evaluate(job, candidate)
        widths = {candidate.knobs_for(r.axes).get("width") for r in verdict.results}
        if not job.held_out or 8 not in widths:
            return verdict
        wrong = {"status": Status.INCORRECT_NUMERICAL, "log": "wrong on held-out n=7"}
        results = tuple(r.model_copy(update={**wrong, "timing": None}) for r in verdict.results)
        return verdict.model_copy(update={**wrong, "results": results})


def test_a_winner_that_is_wrong_off_the_list_falls_and_the_next_best_is_confirmed(
    make_toy_loop: MakeLoop,
) -> None:
    loop = make_toy_loop(WrongOffTheList())
    assert drive(loop) is None
    trials = {trial.candidate.id: trial for trial in history(loop.run)}
    promoted = [line["candidate"] for line in loop.run.lines("promotions.jsonl")]
    fallen = {name for name, trial in trials.items() if trial.status is Status.INCORRECT_NUMERICAL}
    assert fallen & set(promoted[:-1])
    assert trials[promoted[-1]].status is Status.PASSED
    assert trials[promoted[-1]].candidate.knobs["width"] != 8
    last = loop.run.evaluations(loop.run.judged_jobs()[-1])
    assert last[promoted[-1]].status is Status.PASSED
    assert f"`{promoted[-1]}` is" in (loop.run.path / "report.md").read_text(encoding="utf-8")


def test_a_run_waits_for_a_spool_and_resumes(make_toy_loop: MakeLoop) -> None:
    executor = Waiting()
    loop = make_toy_loop(executor)
    assert drive(loop) == "toy-run.r001.judge"
    assert drive(loop) == "toy-run.r001.judge"
    executor.open = True
    assert drive(loop) is None
    assert len(executor.judged) == len(set(executor.judged))


def test_measured_differences_become_lessons_with_evidence(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(workloads=("n64", "n1024"), max_candidates=16)
    drive(loop)
    lines = list(loop.run.lines("lessons.jsonl"))
    assert any(line["action"] == "added" for line in lines)
    evidence = json.loads((loop.wiki.root / "evidence" / "toy-run.json").read_text())
    hashes = {candidate["code_hash"] for candidate in evidence["candidates"].values()}
    for line in lines:
        assert set(line["lesson"]["evidence"][0]["candidates"]) <= hashes
        assert line["lesson"]["effect"]["after"] < line["lesson"]["effect"]["before"]
        low, high = line["lesson"]["effect"]["ci95"]
        assert low <= high < 1
    hits = search(loop.wiki, "toy width faster", types=["lesson"])
    assert {hit.page_id for hit in hits} & {line["page"] for line in lines}


def test_a_second_run_with_the_lessons_needs_fewer_trials(make_toy_loop: MakeLoop) -> None:
    first = make_toy_loop(workloads=("n64", "n1024"), max_candidates=16, seed=3)
    drive(first)
    goal = 0.95 * max(trial.score or 0.0 for trial in history(first.run))
    second = make_toy_loop(workloads=("n64", "n1024"), max_candidates=16, seed=4, run_id="second")
    drive(second)

    def trials_needed(loop: Loop) -> int:
        return next(i for i, t in enumerate(history(loop.run), start=1) if (t.score or 0.0) >= goal)

    assert trials_needed(second) < trials_needed(first)
    assert history(second.run)[0].candidate.cards


def test_the_same_lesson_from_a_second_run_adds_evidence_to_the_first(make_toy_loop: MakeLoop) -> None:
    drive(make_toy_loop(workloads=("n64",), max_candidates=16))
    before = {path.name for path in (make_toy_loop(run_id="x").wiki.root / "lessons").iterdir()}
    again = make_toy_loop(workloads=("n64",), max_candidates=16, run_id="again", use_cards=False)
    drive(again)
    merged = [line for line in again.run.lines("lessons.jsonl") if line["action"] == "merged"]
    assert merged
    assert {f"{line['page']}.md" for line in merged} <= before


def test_without_a_gpu_nothing_is_claimed_about_speed(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(FormulaExecutor(measures=False))
    drive(loop)
    report = (loop.run.path / "report.md").read_text()
    assert "Nothing was measured" in report
    assert "it is no measurement" in report
    for line in loop.run.lines("lessons.jsonl"):
        assert line["lesson"]["effect"]["metric"] == "registers"
        assert line["lesson"]["status"] == "candidate"


def test_the_job_carries_the_task_and_no_kernel_of_the_folder(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop()
    drive(loop)
    job = Job.model_validate_json((loop.run.path / "jobs" / "toy-run.r001.judge" / "job.json").read_text())
    assert set(job.task_files) == {
        "definition.json", "workloads.jsonl", "reference.py", "baseline.py", "knobs.json",
    }  # fmt: skip


@pytest.mark.parametrize("also_the_note", [False, True])
def test_a_contract_that_was_changed_refuses_to_go_on(make_toy_loop: MakeLoop, also_the_note: bool) -> None:
    executor = Waiting()
    loop = make_toy_loop(executor)
    drive(loop)
    contract, head = (loop.run.path / name for name in ("contract.json", "run.json"))
    whole, noted = contract.read_text(), loop.run.contract_sha256
    contract.write_text(whole.replace('"max_candidates": 12', '"max_candidates": 9999'))
    if also_the_note:
        head.write_text(head.read_text().replace(noted, loop.run.contract_sha256))
    with pytest.raises(AgentError, match=r"was changed after it began: put contract.json back"):
        drive(loop)
    contract.write_text(whole)
    if not also_the_note:
        executor.open = True
        assert drive(loop) is None


def test_what_is_slower_on_representative_workloads_is_never_timed_on_all(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(representatives=("n64",), max_candidates=16)
    drive(loop)
    screens = [job for job in loop.run.judged_jobs() if job.endswith(".glance")]
    assert screens, "from the second round on candidates are screened"
    left_out = 0
    for job in screens:
        screened = loop.run.evaluations(job)
        timed = loop.run.evaluations(job.replace(".glance", ".judge"))
        assert {result.uuid for v in screened.values() for result in v.results} == {"n64"}
        for name in timed.keys() - {"baseline"}:
            newest, _ = last_verdict(loop.run, name)
            assert newest is not None
            assert len(newest.results) == 3, "what all workloads say counts more than what some said"
        for name in screened.keys() - timed.keys():
            left_out += 1
            trial = next(trial for trial in history(loop.run) if trial.candidate.id == name)
            assert trial.kind == "measured"
    assert left_out
    for line in loop.run.lines("promotions.jsonl"):
        verdicts = [v for j in loop.run.judged_jobs() for v in loop.run.evaluations(j).values()]
        whole = [v for v in verdicts if v.candidate_id == line["candidate"] and len(v.results) == 3]
        assert whole, "promotion needs all workloads"


def test_representatives_span_the_sizes(task_dir: Path) -> None:
    task = load_task(task_dir)
    uuids = ("n64", "n1", "n1024")
    assert choose_representatives(task, uuids, 2) == ("n1", "n1024")
    assert choose_representatives(task, uuids, 1) == ("n1024",)
    assert choose_representatives(task, uuids, 3) == ()
