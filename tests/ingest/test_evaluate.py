"""Judging the search: what the scores mean, what is wrong with a gold set, and the floors that CI holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from kwiki_ingest.cli import main
from kwiki_ingest.errors import GoldError
from kwiki_ingest.index.sync import sync
from kwiki_ingest.search.evaluate import evaluate
from kwiki_ingest.search.gold import ANSWERS, Question, load_gold
from kwiki_ingest.wiki import Wiki, open_wiki

from tests.ingest.sample_pages import WritePage

GOLD = Path(__file__).parent / "gold" / "questions.jsonl"
REPOSITORY = Path(__file__).parents[2]
SOURCE = "https://example.org/thread"


def question(name: str, text: str, relevant: dict[str, int], arch: str | None = None) -> Question:
    kind = "natural" if relevant else "unanswerable"
    values = {
        "id": name,
        "question": text,
        "kind": kind,
        "arch": arch,
        "relevant": relevant,
        "source": SOURCE,
    }
    return Question.model_validate(values)


@pytest.fixture
def zoo(wiki: Wiki, write_page: WritePage) -> Wiki:
    write_page("zebras", "zebra zebra zebra", title="Zebra")
    write_page("lions", "lion, and once a zebra, among many other words")
    write_page("hopper", "gazelle", arch="[sm_90a]")
    sync(wiki)
    return wiki


def test_scores_are_those_of_the_ranking(zoo: Wiki) -> None:
    second = question("second", "zebra", {"lions": 3})
    first = question("first", "lion", {"lions": 3})
    keyword = evaluate(zoo, [first, second]).scores["keyword"]
    assert keyword.mrr_at_10.mean == pytest.approx((1 + 1 / 2) / 2)
    assert keyword.recall_at_5.mean == 1
    assert keyword.ndcg_at_10.mean == pytest.approx((1 + 1 / 1.58496) / 2, abs=1e-4)
    assert keyword.ndcg_by_kind == {"natural": pytest.approx(keyword.ndcg_at_10.mean)}


def test_what_was_found_and_how_much_of_it_is_graded_is_told(zoo: Wiki) -> None:
    evaluation = evaluate(zoo, [question("one", "zebra", {"lions": 3})])
    assert evaluation.found["keyword"] == {"one": ["zebras", "lions"]}
    assert evaluation.scores["keyword"].judged_at_5 == 1 / 2


def test_a_page_that_is_only_background_counts_for_gain_and_not_as_an_answer(zoo: Wiki) -> None:
    background = question("background", "zebra", {"zebras": 1, "lions": 3})
    keyword = evaluate(zoo, [background]).scores["keyword"]
    assert keyword.mrr_at_10.mean == 1 / 2
    assert keyword.ndcg_at_10.mean > 1 / 1.58496


def test_a_question_that_finds_nothing_scores_nothing_and_is_declined(zoo: Wiki) -> None:
    lost = question("lost", "okapi", {"lions": 3})
    keyword = evaluate(zoo, [lost]).scores["keyword"]
    assert (keyword.ndcg_at_10.mean, keyword.declined_answerable) == (0, 1)


def test_an_unanswerable_question_is_declined_below_the_floor(zoo: Wiki) -> None:
    asked = [question("known", "zebra", {"zebras": 3}), question("unknown", "a zebra in a tree", {})]
    low, high = evaluate(zoo, asked, floor=0.0).scores, evaluate(zoo, asked, floor=1.1).scores
    assert [scores["both"].declined_unanswerable for scores in (low, high)] == [0, 1]
    assert [scores["both"].declined_answerable for scores in (low, high)] == [0, 1]
    assert high["keyword"].declined_unanswerable == 0


def test_another_architecture_is_counted_among_those_who_asked_for_one(zoo: Wiki) -> None:
    asked = [question("about", "gazelle zebra", {"zebras": 3}, arch="sm_100a")]
    assert evaluate(zoo, asked).scores["both"].leaked == 0
    assert evaluate(zoo, [question("any", "zebra", {"zebras": 3})]).scores["both"].leaked is None


def test_intervals_hold_the_mean_and_repeat(zoo: Wiki) -> None:
    asked = [question(f"q{n}", "zebra", {"zebras" if n % 3 else "lions": 3}) for n in range(12)]
    once, again = evaluate(zoo, asked), evaluate(zoo, asked)
    estimate = once.scores["keyword"].mrr_at_10
    assert estimate.low < estimate.mean < estimate.high
    assert estimate == again.scores["keyword"].mrr_at_10
    assert set(once.ndcg_gain) == {"dense - keyword", "both - keyword", "both - dense"}


def test_without_a_model_only_the_keyword_leg_is_judged(zoo: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "none")
    assert set(evaluate(zoo, [question("one", "zebra", {"zebras": 3})]).scores) == {"keyword"}


def test_a_graded_page_that_the_index_lacks_is_named(zoo: Wiki) -> None:
    with pytest.raises(GoldError, match="`one` grades the page `tigers`"):
        evaluate(zoo, [question("one", "zebra", {"tigers": 3})])


def test_nothing_answerable_is_nothing_to_score(zoo: Wiki) -> None:
    with pytest.raises(GoldError, match="nothing to score"):
        evaluate(zoo, [question("one", "zebra", {})])


LINE = {"id": "a", "question": "why", "kind": "natural", "relevant": {"p": 3}, "source": SOURCE}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"relevant": {"p": 1}}, "no page is graded 2 or 3"),
        ({"relevant": {"p": 4}}, "less than or equal to 3"),
        ({"kind": "unanswerable"}, "no page graded above 0"),
        ({"kind": "riddle"}, "kind"),
        ({"arch": "sm_90"}, "arch"),
        ({"source": "a friend"}, "source"),
        ({"grade": 3}, "grade"),
    ],
    ids=str,
)
def test_a_wrong_line_is_named_with_its_number(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text(f"{json.dumps(LINE)}\n\n{json.dumps(LINE | {'id': 'b'} | change)}\n")
    with pytest.raises(GoldError, match=rf"gold\.jsonl:3: .*{reason}"):
        load_gold(gold)


def test_ids_are_unique(tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text(f"{json.dumps(LINE)}\n{json.dumps(LINE)}\n")
    with pytest.raises(GoldError, match=r"gold\.jsonl:2: the id `a` is taken"):
        load_gold(gold)


def test_the_command_prints_a_table_or_json(
    zoo: Wiki, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps(LINE | {"question": "zebra", "relevant": {"zebras": 3}}) + "\n")
    place = ["--wiki", str(zoo.root)]
    assert main(["eval", str(gold), *place]) == 0
    assert "nDCG@10" in capsys.readouterr().out
    assert main(["eval", str(gold), *place, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["scores"]["keyword"]["mrr_at_10"] == {"mean": 1, "low": 1, "high": 1}
    assert main(["eval", str(tmp_path / "none.jsonl"), *place]) == 1
    assert "none.jsonl cannot be read" in capsys.readouterr().err


def test_the_gold_set_asks_in_every_way_on_both_sides() -> None:
    questions = load_gold(GOLD)
    assert len(questions) >= 100
    kinds = {"natural", "symptom", "error-text", "identifier", "chinese", "unanswerable"}
    for split in ("dev", "test"):
        assert {question.kind for question in questions if question.split == split} == kinds


def test_questions_with_one_main_page_stand_on_one_side() -> None:
    one = question("one", "zebra", {"zebras": 3, "lions": 2})
    other = question("other", "stripes", {"hopper": 1, "zebras": 3})
    assert one.split == other.split
    assert {question(f"q{n}", "zebra", {f"page-{n}": 3}).split for n in range(20)} == {"dev", "test"}


def real_wiki(target: Path, only: Collection[str] | None = None) -> Wiki:
    """The repository's wiki, or some of its pages, without its index."""
    source = open_wiki(REPOSITORY / "wiki")
    shutil.copytree(source.root, target, ignore=shutil.ignore_patterns(".*"))
    wiki = Wiki(target)
    if only is not None:
        for path in list(wiki.page_files()):
            if path.stem not in only:
                path.unlink()
    sync(wiki)
    return wiki


def test_the_keyword_leg_keeps_its_level_over_the_whole_wiki(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "none")
    keyword = evaluate(real_wiki(tmp_path / "wiki"), load_gold(GOLD)).scores["keyword"]
    assert keyword.ndcg_at_10.mean >= 0.71
    assert keyword.recall_at_5.mean >= 0.70
    assert keyword.mrr_at_10.mean >= 0.76
    assert keyword.leaked == 0


def test_both_legs_keep_their_level_over_a_part_of_the_wiki(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole wiki takes minutes to encode; these folders take seconds and hold a third of the answers."""
    monkeypatch.delenv("KERNEL_WIKI_MODEL")
    folders = ("dsl", "patterns", "profiling", "techniques")
    there = {path.stem for folder in folders for path in (REPOSITORY / "wiki" / folder).glob("*.md")}
    graded = {page for q in load_gold(GOLD) for page, grade in q.relevant.items() if grade >= ANSWERS}
    wiki = real_wiki(tmp_path / "wiki", there & graded)
    asked = [
        question.model_copy(update={"relevant": kept})
        for question in load_gold(GOLD)
        if (kept := {page: grade for page, grade in question.relevant.items() if page in there & graded})
        and max(kept.values()) == 3
    ]
    both = evaluate(wiki, asked).scores["both"]
    assert both.ndcg_at_10.mean >= 0.81
    assert both.recall_at_5.mean >= 0.83
    assert both.leaked == 0
