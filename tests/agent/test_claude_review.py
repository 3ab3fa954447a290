"""The reviewer sees contract, change and evidence, and can stop a promotion, nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from kwiki_agent.contract import RunStoppedError
from kwiki_agent.graph import drive
from kwiki_agent.policy.endpoint import MAX_RETRIES
from kwiki_agent.scripted_model import Call, Fail, Say, call

from tests.agent.claude import claude_loop, rank, served, submit
from tests.agent.toy import MakeLoop


def verdict(*, veto: bool, reason: str = "it looks sound") -> Call:
    return call("verdict", veto=veto, reason=reason)


def text_of(request: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in request["messages"][0]["content"])


def promoted(loop: Any) -> list[str]:
    return [line["candidate"] for line in loop.run.lines("promotions.jsonl")]


def test_the_reviewer_sees_contract_change_and_evidence_and_not_the_authors_words(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = claude_loop(make_toy_loop, review=True, max_candidates=2)
    author = submit(2, 4, intent="SECRET-INTENT")
    with served([rank("SECRET-IDEA", "vectors"), author, verdict(veto=False)], monkeypatch) as model:
        assert drive(loop) is None
    asked = model.requests[2]
    assert [tool["name"] for tool in asked["tools"]] == ["verdict"]
    assert "You review GPU kernels" in asked["system"][0]["text"]
    text = text_of(asked)
    assert '"workloads":["n1","n64","n1024"]' in text
    assert "+    pass" in text
    assert "n1024: PASSED" in text
    assert "SECRET" not in text
    assert promoted(loop) == ["c0002"]
    assert {line["role"] for line in loop.run.lines("usage.jsonl")} == {"author", "reviewer"}


def test_a_veto_gives_the_next_best_its_turn_and_is_told_in_the_report(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = claude_loop(make_toy_loop, review=True, max_candidates=2)
    script = [
        rank("vectors"), submit(2, 4),
        verdict(veto=True, reason="it skips\n\n## the last row"), verdict(veto=False),
    ]  # fmt: skip
    with served(script, monkeypatch):
        assert drive(loop) is None
    assert promoted(loop) == ["c0001"]
    assert (
        "`c0002` was vetoed in round 1: it skips ## the last row\n"
        in (loop.run.path / "report.md").read_text()
    )


@pytest.mark.parametrize("reply", [Say("Fine by me."), Say("no", "refusal"), call("verdict", veto="perhaps")])
def test_a_reviewer_without_a_verdict_leaves_the_rule_to_decide(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch, reply: Say | Call
) -> None:
    loop, _ = claude_loop(make_toy_loop, review=True, max_candidates=2)
    with served([rank("vectors"), submit(2, 4), reply], monkeypatch):
        assert drive(loop) is None
    assert promoted(loop) == ["c0002"]
    assert "the review of `c0002` gave no verdict" in (loop.run.path / "report.md").read_text()


def test_a_reviewer_that_cannot_be_reached_stops_the_run_before_the_promotion(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = claude_loop(make_toy_loop, review=True, max_candidates=2)
    down = [Fail(529)] * (MAX_RETRIES + 1)
    with served([rank("vectors"), submit(2, 4), *down], monkeypatch), pytest.raises(RunStoppedError):
        drive(loop)
    assert promoted(loop) == []
    with served([verdict(veto=False)], monkeypatch) as model:
        assert drive(loop) is None
    assert len(model.requests) == 1
    assert promoted(loop) == ["c0002"]


def test_another_model_may_review(make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, _ = claude_loop(make_toy_loop, review=True, max_candidates=2, reviewer={"name": "another"})
    with served([rank("vectors"), submit(2, 4), verdict(veto=False)], monkeypatch) as model:
        drive(loop)
    assert [request["model"] for request in model.requests] == ["scripted", "scripted", "another"]
