"""Promotion and stopping are rules in code."""

from __future__ import annotations

from kwiki_agent.budget import Spent
from kwiki_agent.compare import compare
from kwiki_agent.decide import next_phase, why_search_ends
from kwiki_agent.graph import drive
from kwiki_agent.state import RunState
from kwiki_agent.trials import best, history
from kwiki_kernels.evaluation import Evaluation, Knobs, Status
from kwiki_kernels.job import Candidate, Job

from tests.agent.toy import FormulaExecutor, MakeLoop


def verdicts(
    executor: FormulaExecutor, loop_files: dict[str, str], knobs: list[Knobs], job_id: str = "j"
) -> list[Evaluation]:
    candidates = tuple(Candidate(id=f"c{i}", source="", knobs=k) for i, k in enumerate(knobs))
    job = Job(
        id=job_id, task_files=loop_files, workload_uuids=("n1", "n64"), arch="sm_90a", candidates=candidates,
        seed=0, kernel_wiki_version="0",
    )  # fmt: skip
    executor.submit(job)
    return executor.collect(job_id) or []


def test_the_same_kernel_against_itself_is_never_faster(make_toy_loop: MakeLoop) -> None:
    files = make_toy_loop().task.files
    same = [{"width": 8, "depth": 4}, {"width": 8, "depth": 4}]
    promoted = 0
    for trial in range(100):
        a, b = verdicts(FormulaExecutor(), files, same, job_id=f"j{trial}")
        ratio = compare(a, b)
        assert ratio is not None
        promoted += ratio.low > 1.005
    assert promoted == 0


def test_a_real_difference_has_an_interval_around_the_truth(make_toy_loop: MakeLoop) -> None:
    files = make_toy_loop().task.files
    slow, fast = verdicts(FormulaExecutor(), files, [{"width": 1, "depth": 4}, {"width": 8, "depth": 4}])
    ratio = compare(slow, fast, workloads=["n64"])
    assert ratio is not None
    assert ratio.low < 1.6 < ratio.high
    assert ratio.high - ratio.low < 0.03
    assert ratio.n == 150


def test_nothing_is_compared_where_one_side_did_not_run(make_toy_loop: MakeLoop) -> None:
    files = make_toy_loop().task.files
    executor = FormulaExecutor()
    executor.failing["c1"] = Status.TIMEOUT
    good, failed = verdicts(executor, files, [{"width": 1, "depth": 4}, {"width": 8, "depth": 4}])
    assert compare(good, failed) is None


def test_a_run_ends_at_the_best_point(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(workloads=("n64", "n1024"), max_candidates=16)
    drive(loop)
    winner = best(history(loop.run))
    assert winner is not None
    assert winner.candidate.knobs == {"width": 8, "depth": 4}
    assert winner.score is not None
    assert 5.9 < winner.score < 6.1


def test_a_failed_candidate_is_recorded_and_never_promoted(make_toy_loop: MakeLoop) -> None:
    executor = FormulaExecutor()
    executor.failing = {f"c{number:04d}": Status.INCORRECT_NUMERICAL for number in range(2, 60)}
    loop = make_toy_loop(executor)
    drive(loop)
    failed = [trial for trial in history(loop.run) if trial.status is Status.INCORRECT_NUMERICAL]
    assert failed
    assert all(trial.score is None for trial in failed)
    assert "What failed, and why" in (loop.run.path / "report.md").read_text()
    assert {line["candidate"] for line in loop.run.lines("promotions.jsonl")} == {"c0001"}


def test_a_run_where_nothing_passes_says_so(make_toy_loop: MakeLoop) -> None:
    executor = FormulaExecutor()
    executor.failing = {f"c{number:04d}": Status.RUNTIME_ERROR for number in range(1, 60)}
    loop = make_toy_loop(executor)
    drive(loop)
    report = (loop.run.path / "report.md").read_text()
    assert "No candidate passed" in report
    assert not list(loop.run.lines("lessons.jsonl"))


def test_a_score_asked_for_ends_the_search(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(stop_at=2.0, search_only=True, max_candidates=40)
    drive(loop)
    assert max(trial.score or 0.0 for trial in history(loop.run)) >= 2.0
    assert "score 2 was reached" in (loop.run.path / "report.md").read_text()


def test_phases_follow_search_ablate_confirm(make_toy_loop: MakeLoop) -> None:
    contract = make_toy_loop().contract
    state: RunState = {
        "phase": "search",
        "batch": ["c0001"],
        "searched": 4,
        "stalled": 0,
        "incumbent": "c0001",
    }

    def after(**changes: object) -> tuple[str, str | None]:
        return next_phase(contract, {**state, **changes}, spent=Spent(), best_score=1.0)  # type: ignore[typeddict-item]

    assert after() == ("search", None)
    assert after(stalled=3) == ("ablate", None)
    assert after(searched=12) == ("ablate", None)
    assert after(batch=[]) == ("ablate", None)
    assert after(phase="ablate") == ("confirm", None)
    assert after(phase="confirm", search_ended="of this") == ("confirm", "of this")
    why = why_search_ends(contract, {**state, "searched": 12}, spent=Spent(), best_score=1.0)
    assert why == "the search tried all 12 candidates of its budget"
    _, why = next_phase(contract, state, spent=Spent(judge_s=3600.0), best_score=1.0)
    assert why is not None
    assert "budget of 3600 s" in why
