"""Which pages reach the author of a kernel."""

from __future__ import annotations

from pathlib import Path

from kwiki_agent.cards import cards_to_use
from kwiki_agent.contract import MAX_CARDS
from kwiki_ingest.page import Confidence, Knob, PageType, Status
from kwiki_ingest.search.retrieve import Hit
from kwiki_kernels.task import load_task


def hit(name: str, *knobs: str, op: str | None = None) -> Hit:
    return Hit(
        page_id=name, title=name, type=PageType.LESSON, arch=("sm_90a",), op=op, status=Status.CONFIRMED,
        confidence=Confidence.MEASURED, heading="", text="", path=f"lessons/{name}.md", score=1.0, ranks={},
        knobs=tuple(Knob(name=knob, op="==", value=4) for knob in knobs),
    )  # fmt: skip


def test_advice_on_knobs_that_the_task_lost_gives_way(task_dir: Path) -> None:
    hits = [hit("gone", "prefetch_weight"), hit("other-operator", op="gemm")]
    hits += [hit(f"text-{n}") for n in range(MAX_CARDS - 1)] + [hit("known", "prefetch_weight", "width")]
    cards = [card["id"] for card in cards_to_use(hits, load_task(task_dir))]
    assert cards == [*(f"text-{n}" for n in range(MAX_CARDS - 1)), "known"]


def test_stale_advice_is_shown_where_there_is_room(task_dir: Path) -> None:
    cards = cards_to_use([hit("gone", "prefetch_weight"), hit("text")], load_task(task_dir))
    assert [card["id"] for card in cards] == ["text", "gone"]
