"""Which pages reach the author of a kernel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kwiki_agent.cards import POOL, cards_to_use
from kwiki_agent.contract import MAX_CARDS
from kwiki_agent.query import query_for
from kwiki_ingest.index.sync import sync
from kwiki_ingest.page import Confidence, Knob, PageType, Status
from kwiki_ingest.search.retrieve import Hit, search
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.evaluation import KnobValue
from kwiki_kernels.task import load_task

REPOSITORY = Path(__file__).parents[2]


def hit(name: str, *knobs: str, op: str | None = None, value: int = 4, valid_when: str | None = None) -> Hit:
    return Hit(
        page_id=name, title=name, type=PageType.LESSON, arch=("sm_90a",), op=op, status=Status.CONFIRMED,
        confidence=Confidence.MEASURED, heading="", text="", path=f"lessons/{name}.md", score=1.0, ranks={},
        knobs=tuple(Knob(name=knob, op="==", value=value) for knob in knobs),
        valid_when=valid_when,
    )  # fmt: skip


def chosen(hits: list[Hit], task_dir: Path, **knobs: KnobValue) -> list[str]:
    task = load_task(task_dir)
    cards = cards_to_use(hits, task, workloads=[task.workloads[0].uuid], knobs=knobs)
    return [card["id"] for card in cards]


def test_advice_on_knobs_that_the_task_lost_gives_way(task_dir: Path) -> None:
    hits = [hit("gone", "prefetch_weight"), hit("other-operator", op="gemm")]
    hits += [hit(f"text-{n}") for n in range(MAX_CARDS - 1)] + [hit("known", "prefetch_weight", "width")]
    assert chosen(hits, task_dir) == [*(f"text-{n}" for n in range(MAX_CARDS - 1)), "known"]


def test_stale_advice_is_shown_where_there_is_room(task_dir: Path) -> None:
    assert chosen([hit("gone", "prefetch_weight"), hit("text")], task_dir) == ["text", "gone"]


def test_a_lesson_that_the_starting_point_follows_gives_way_to_one_that_changes_it(task_dir: Path) -> None:
    hits = [hit("followed", "width"), hit("news", "width", value=8)]
    assert chosen(hits, task_dir, width=4) == ["news", "followed"]
    assert chosen(hits, task_dir, width=8) == ["followed", "news"]


def test_a_lesson_of_other_shapes_gives_way(task_dir: Path) -> None:
    axis = next(iter(load_task(task_dir).workloads[0].axes))
    hits = [hit("elsewhere", valid_when=f"{axis} < 0"), hit("here", valid_when=f"{axis} > 0")]
    hits.append(hit("in-words", valid_when="wherever rows are long"))
    assert chosen(hits, task_dir) == ["here", "in-words", "elsewhere"]


@pytest.mark.parametrize("workload", ["h4096-t1024", "h5120-t1024", "h7168-t1", "h7168-t128", "h8192-t1024"])
def test_what_was_found_on_just_these_shapes_reaches_the_first_draft(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many lessons of the family only confirm its defaults."""
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "none")
    for folder in ("lessons", "kernels"):
        shutil.copytree(REPOSITORY / "wiki" / folder, tmp_path / folder)
    shutil.copy(REPOSITORY / "wiki" / "vocabulary.yaml", tmp_path)
    sync(wiki := Wiki(tmp_path))
    task = load_task(REPOSITORY / "kernels" / "tasks" / "rmsnorm")
    assert task.knob_space is not None
    hits = search(wiki, query_for("draft", task, {}), arch="sm_90a", k=POOL)
    cards = cards_to_use(hits, task, workloads=[workload], knobs=task.knob_space.default)
    assert any(card["id"].endswith(f"-{workload}") for card in cards)
