"""Loops whose kernels come from a scripted model, and the turns that such a model takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kwiki_agent.loop import Loop
from kwiki_agent.policy.claude import Claude
from kwiki_agent.policy.reviewer import ModelReviewer
from kwiki_agent.scripted_model import Call, ScriptedModel, Turn

from tests.agent.toy import FormulaExecutor, MakeLoop

KEY = "a-key-for-the-tests"
MODEL: dict[str, Any] = {
    "name": "scripted",
    "price": {
        "input": 10.0, "cache_write": 12.5, "cache_read": 1.0, "output": 50.0,
        "date": "2026-11-30", "source": "test",
    },
}  # fmt: skip


def kernel(body: str = "pass") -> str:
    """A module that the audit lets pass; the formula executor never builds it."""
    return f"import cutlass.cute as cute\n\n\ndef build(axes, knobs):\n    {body}\n"


def rank(*names: str) -> Call:
    """Rank these directions."""
    directions = [{"name": name, "why": f"{name} bounds it"} for name in names]
    return Call((("rank_directions", {"directions": directions}),))


def submission(width: int, *, direction: str = "vectors", depth: int = 1, **changes: Any) -> dict[str, Any]:
    """The input of a submit_candidate call."""
    return {
        "direction": direction, "intent": f"loads {width} wide", "cards": [], "source": kernel(),
        "knobs": [{"name": "width", "value": width}, {"name": "depth", "value": depth}],
    } | changes  # fmt: skip


def submit(*widths: int, **changes: Any) -> Call:
    """Submit one kernel a width."""
    return Call(tuple(("submit_candidate", submission(width, **changes)) for width in widths))


@contextmanager
def served(script: list[Turn], monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModel]:
    """A scripted model that the environment points to."""
    with ScriptedModel(script) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield model


def claude_loop(
    make: MakeLoop, executor: FormulaExecutor | None = None, *, review: bool = False, **contract: object
) -> tuple[Loop, list[str]]:
    """A loop under the claude policy, and the lines that it says."""
    said: list[str] = []
    fields = {"policy": "claude", "model": MODEL, "batch": 2, "reviewer": MODEL if review else None}
    loop = make(executor, **fields | contract)
    loop = dataclasses.replace(
        loop, say=said.append, policy=Claude(loop.run, loop.wiki, loop.builder, said.append),
        reviewer=ModelReviewer(loop.run, loop.contract, said.append) if review else None,
    )  # fmt: skip
    return loop, said
