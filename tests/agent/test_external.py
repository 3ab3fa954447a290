"""Kernels handed in from outside: the graph waits for them, refuses what wastes a build, and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kwiki_agent.brief import brief_document, brief_text
from kwiki_agent.contract import AgentError
from kwiki_agent.graph import drive, locate
from kwiki_agent.hand_in import hand_in
from kwiki_agent.loop import Loop
from kwiki_agent.policy.external import SUBMISSION, External
from kwiki_agent.submission import Draft, read_kernel
from kwiki_agent.trials import history
from kwiki_ingest.errors import WikiError
from kwiki_kernels.evaluation import Knobs, Status

from tests.agent.toy import FormulaExecutor, MakeLoop

MakeExternal = Callable[..., Loop]


@pytest.fixture
def make_external_loop(make_toy_loop: MakeLoop) -> MakeExternal:
    def make(executor: FormulaExecutor | None = None, **contract: object) -> Loop:
        loop = make_toy_loop(executor, policy="external", **contract)
        return replace(loop, policy=External(loop.run))

    return make


def draft(variant: int = 0, *, width: int = 8, depth: int = 4, **changes: object) -> Draft:
    """A text that passes the audit; the toy's speed depends on the knobs alone."""
    knobs: Knobs = {"width": width, "depth": depth}
    fields = {"name": f"k{variant}.py", "source": f"from cutlass import cute\nVARIANT = {variant}\n"}
    return Draft(**({**fields, "knobs": knobs, "intent": f"try variant {variant}"} | changes))


def test_a_run_waits_for_kernels_judges_them_and_ends_when_no_more_come(
    make_external_loop: MakeExternal,
) -> None:
    loop = make_external_loop()
    assert drive(loop) == SUBMISSION
    hand_in(loop, [draft(1, width=4), draft(2)])
    assert drive(loop) == SUBMISSION
    hand_in(loop, [])
    assert drive(loop) is None
    assert [t.candidate.id for t in history(loop.run)] == ["c0001", "c0002"]
    assert locate(loop).state["incumbent"] == "c0002"
    assert locate(loop).state["stop"] == "nothing new was proposed"
    assert (loop.run.path / "report.md").exists()


def test_a_submission_that_was_kept_is_judged_after_a_kill(make_external_loop: MakeExternal) -> None:
    executor = FormulaExecutor()
    loop = make_external_loop(executor)
    drive(loop)
    hand_in(loop, [draft(1)])  # and the process ends here
    with pytest.raises(AgentError, match="handed in already: `kernel-agent resume toy-run`"):
        hand_in(loop, [draft(2)])
    assert drive(loop) == SUBMISSION
    assert len(executor.judged) == len(set(executor.judged))
    assert [t.candidate.source for t in history(loop.run)] == [draft(1).source]


def test_the_baseline_is_measured_with_the_first_kernels_that_build(
    make_external_loop: MakeExternal,
) -> None:
    loop = make_external_loop()
    builder = FormulaExecutor(measures=False)
    builder.failing = {"c0001": Status.COMPILE_ERROR}
    loop = replace(loop, builder=builder)
    drive(loop)
    hand_in(loop, [draft(1)])
    drive(loop)
    hand_in(loop, [draft(2)])
    drive(loop)
    verdicts = loop.run.evaluations(loop.run.judged_jobs()[0])
    assert set(verdicts) == {"baseline", "c0002"}
    assert locate(loop).state["stalled"] == 0


def test_three_rounds_without_a_promotion_end_the_search(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop()
    drive(loop)
    for variant in range(4):
        assert locate(loop).waiting_for == SUBMISSION
        hand_in(loop, [draft(variant, width=8 if variant == 0 else 1, direction=f"way {variant}")])
        waiting_for = drive(loop)
    assert waiting_for is None


def test_two_rounds_without_a_promotion_close_the_directions_tried(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop()
    drive(loop)
    for variant in range(3):
        hand_in(loop, [draft(variant, width=8 if variant == 0 else 1, direction="unroll")])
        drive(loop)
    with pytest.raises(AgentError, match="leave 'unroll' for a direction not tried yet"):
        hand_in(loop, [draft(9, direction="unroll")])
    with pytest.raises(AgentError, match="name the new direction"):
        hand_in(loop, [draft(9)])
    hand_in(loop, [draft(9, direction="wider")])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (draft(intent=" "), "k0.py lacks an intent"),
        (draft(source="def f(:\n"), "k0.py is no Python at line 1"),
        (draft(source="import os\n"), "k0.py would be rejected: line 1 imports os"),
        (draft(source="x = 1\n" * 60_000), "k0.py has 360,000 bytes and may have 262,144"),
        (draft(width=3), "knob 'width' cannot be 3"),
        (draft(parent="c0009"), "there is no candidate 'c0009'"),
        (draft(7), "k7.py is candidate c0001 again"),
        (draft(7, source=f'"""Other words."""\n{draft(7).source}# and a comment\n'), "c0001 again"),
    ],
    ids=["no intent", "no Python", "audit", "size", "knob", "parent", "same", "same but for comments"],
)
def test_what_would_waste_a_build_is_refused_in_one_sentence(
    make_external_loop: MakeExternal, wrong: Draft, words: str
) -> None:
    loop = make_external_loop()
    drive(loop)
    hand_in(loop, [draft(7)])
    drive(loop)
    with pytest.raises(AgentError, match=words) as caught:
        hand_in(loop, [draft(8), wrong])
    assert "\n" not in str(caught.value)
    assert len(history(loop.run)) == 1
    assert locate(loop).waiting_for == SUBMISSION


def test_a_card_must_be_a_page(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop()
    drive(loop)
    with pytest.raises(WikiError, match="no page `nowhere`"):
        hand_in(loop, [draft(cards=("nowhere",))])


def test_the_seeds_constraints_bind_the_seed_and_no_other_text(
    make_external_loop: MakeExternal, task_dir: Path
) -> None:
    seed = "from cutlass import cute\n"
    (task_dir / "kernel.py").write_text(seed)
    loop = make_external_loop()
    drive(loop)
    with pytest.raises(AgentError, match="on n1 it breaks 'width \\* depth <= 64'"):
        hand_in(loop, [draft(source=seed, width=16, depth=8)])
    hand_in(loop, [draft(source=seed + "MORE = 1\n", width=16, depth=8)])


def test_a_round_takes_no_more_than_the_budget_holds(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop(max_candidates=3)
    drive(loop)
    hand_in(loop, [draft(1, width=4), draft(2)])
    drive(loop)
    assert brief_document(loop, locate(loop)).room == 1
    with pytest.raises(AgentError, match="takes 1 now"):
        hand_in(loop, [draft(3), draft(4)])


def test_a_run_that_waits_for_no_kernels_takes_none(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop()
    with pytest.raises(AgentError, match="stopped before its first step"):
        hand_in(loop, [draft()])
    drive(loop)
    hand_in(loop, [])
    drive(loop)
    with pytest.raises(AgentError, match="is finished"):
        hand_in(loop, [draft()])


def test_a_tuners_run_takes_no_kernels(make_toy_loop: MakeLoop) -> None:
    with pytest.raises(AgentError, match="proposes by itself"):
        hand_in(make_toy_loop(), [draft()])


def test_the_brief_holds_what_an_author_needs(make_external_loop: MakeExternal) -> None:
    loop = make_external_loop()
    loop.executor.failing = {"c0002": Status.INCORRECT_NUMERICAL}  # type: ignore[attr-defined]
    drive(loop)
    hand_in(loop, [draft(1), draft(2)])
    drive(loop)
    brief = brief_document(loop, locate(loop))
    assert brief.waiting_for == SUBMISSION
    assert brief.round == 2
    assert brief.best is not None
    assert brief.best.source == draft(1).source
    assert {w["uuid"] for w in brief.best.workloads} == {"n1", "n64", "n1024"}
    assert all(w["baseline_us"] > w["median_us"] for w in brief.best.workloads)
    assert [f["id"] for f in brief.failures] == ["c0002"]
    text = brief_text(brief)
    for needed in ("def run(x)", "VARIANT = 1", "c0002 fails by design", "`width` 1; 1, 2", brief.submit):
        assert needed in text
    assert json.loads(brief.model_dump_json())["definition"]["name"] == "toy"


def test_kernel_files_are_read_only_if_they_are_small_texts(tmp_path: Path) -> None:
    big, binary = tmp_path / "big.py", tmp_path / "binary.py"
    big.write_bytes(b"#" * 5_000_000)
    binary.write_bytes(b"\xff\xfe")
    for path, words in (
        (tmp_path / "none.py", "no kernel file"),
        (big, "5,000,000 bytes"),
        (binary, "UTF-8"),
    ):
        with pytest.raises(AgentError, match=words):
            read_kernel(path)
