"""The tuner proposes valid new points, listens to cards, and needs none."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_agent.contract import AgentError
from kwiki_agent.graph import drive
from kwiki_agent.loop import Loop
from kwiki_agent.policy import Brief
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.state import Card, KnobAdvice
from kwiki_agent.trials import history
from kwiki_kernels.evaluation import Knobs
from kwiki_kernels.task import load_task

from tests.agent.toy import FormulaExecutor, MakeLoop, latency_us


def brief(loop: Loop, **changes: object) -> Brief:
    fields: dict[str, object] = {
        "contract": loop.contract, "task": loop.task, "phase": "search", "round": 0, "trials": (),
        "incumbent": None, "cards": (), "stalled": 0, "best_per_workload": {},
    }  # fmt: skip
    return Brief(**(fields | changes))  # type: ignore[arg-type]


def card(*advice: KnobAdvice, status: str = "confirmed", card_id: str = "a-card") -> Card:
    return {
        "id": card_id, "title": "", "status": status, "confidence": "experimental", "text": "",
        "knobs": list(advice),
    }  # fmt: skip


def hint(name: str, op: str, value: object, when: str | None = None) -> KnobAdvice:
    return {"name": name, "op": op, "value": value, "when": when}  # type: ignore[typeddict-item]


def knobs_of(loop: Loop, **changes: object) -> list[Knobs]:
    return [candidate.knobs for candidate in Tuner().propose(brief(loop, **changes))]


def test_the_first_candidate_without_cards_is_the_tasks_default(make_toy_loop: MakeLoop) -> None:
    assert knobs_of(make_toy_loop())[0] == {"width": 1, "depth": 1}


def test_what_a_card_recommends_is_tried_first(make_toy_loop: MakeLoop) -> None:
    proposed = Tuner().propose(brief(make_toy_loop(), cards=(card(hint("width", "==", 8)),)))
    assert proposed[0].knobs == {"width": 8, "depth": 1}
    assert proposed[0].cards == ("a-card",)


def test_a_card_on_just_these_shapes_is_tried_before_one_that_speaks_in_general(
    make_toy_loop: MakeLoop,
) -> None:
    general = card(hint("width", "==", 2), card_id="general")
    specific = card(hint("width", "==", 8, when="1 == 1"), card_id="specific")
    assert [knobs["width"] for knobs in knobs_of(make_toy_loop(), cards=(general, specific))][:2] == [8, 2]


def test_a_bound_moves_the_default_to_the_nearest_permitted_value(make_toy_loop: MakeLoop) -> None:
    assert knobs_of(make_toy_loop(), cards=(card(hint("width", ">=", 4)),))[0]["width"] == 4


def test_a_confirmed_card_narrows_the_search(make_toy_loop: MakeLoop) -> None:
    proposed = knobs_of(make_toy_loop(batch=10), cards=(card(hint("width", ">=", 4)),))
    sampled = [knobs for knobs in proposed if knobs != {"width": 1, "depth": 1}]
    assert len(sampled) > 5
    assert all(int(knobs["width"]) >= 4 for knobs in sampled)


def test_an_unconfirmed_card_seeds_but_does_not_narrow(make_toy_loop: MakeLoop) -> None:
    advice = card(hint("width", "==", 8), status="candidate")
    proposed = knobs_of(make_toy_loop(batch=12), cards=(advice,))
    assert proposed[0]["width"] == 8
    assert len({knobs["width"] for knobs in proposed}) > 2


def test_a_stalled_search_leaves_the_narrowing(make_toy_loop: MakeLoop) -> None:
    proposed = knobs_of(make_toy_loop(batch=12), cards=(card(hint("width", ">=", 4)),), stalled=2)
    assert any(int(knobs["width"]) < 4 for knobs in proposed[2:])


@pytest.mark.parametrize(
    "advice",
    [
        hint("no_such_knob", "==", 3),
        hint("width", "==", 3),
        hint("width", ">=", 4, when="n >= 100000"),
        hint("width", ">=", 4, when="n >"),
    ],
    ids=["unknown knob", "value outside the space", "other shapes", "broken condition"],
)
def test_advice_that_cannot_apply_changes_nothing(make_toy_loop: MakeLoop, advice: KnobAdvice) -> None:
    loop = make_toy_loop()
    assert knobs_of(loop, cards=(card(advice),)) == knobs_of(loop)


def test_no_point_is_proposed_twice_and_all_satisfy_the_constraints(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(batch=20, max_candidates=20)
    proposed = knobs_of(loop)
    assert len(proposed) == len({tuple(sorted(knobs.items())) for knobs in proposed}) > 10
    assert all(int(knobs["width"]) * int(knobs["depth"]) <= 64 for knobs in proposed)


def test_a_fixed_knob_never_varies(make_toy_loop: MakeLoop) -> None:
    proposed = knobs_of(make_toy_loop(fixed_knobs={"depth": 2}, batch=5))
    assert {knobs["depth"] for knobs in proposed} == {2}


def test_the_same_seed_proposes_the_same_and_another_seed_does_not(
    make_toy_loop: MakeLoop, tmp_path: Path
) -> None:
    del tmp_path
    one, again, other = (
        knobs_of(make_toy_loop(run_id=name, seed=seed, batch=6))
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    assert one == again != other


def test_the_ablation_moves_one_knob_of_the_incumbent_one_step(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(FormulaExecutor())
    drive(loop)
    for trial in history(loop.run):
        if trial.candidate.intent.startswith("ablate"):
            parent = loop.run.candidate(trial.candidate.parent or "")
            changed = [name for name in parent.knobs if parent.knobs[name] != trial.candidate.knobs[name]]
            assert len(changed) == 1


def test_the_dispatch_gives_each_shape_its_fastest_knobs(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(FormulaExecutor(), max_candidates=20)
    drive(loop)
    *tried, dispatched = loop.run.candidates()
    assert dispatched.rules
    for n in (1, 64, 1024):
        fastest_us = min(latency_us(candidate.knobs, {"n": n}) for candidate in tried)
        assert latency_us(dispatched.knobs_for({"n": n}), {"n": n}) < 1.02 * fastest_us


def test_a_task_without_knobs_is_refused_in_one_sentence(make_toy_loop: MakeLoop, task_dir: Path) -> None:
    loop = make_toy_loop()
    (task_dir / "knobs.json").unlink()
    with pytest.raises(AgentError, match=r"task toy has no knobs\.json"):
        Tuner().propose(brief(loop, task=load_task(task_dir)))
