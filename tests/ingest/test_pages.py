"""Reading page files strictly, and rendering them."""

from __future__ import annotations

import datetime as dt

import pytest
from kwiki_ingest.errors import PageError, UnknownNameError, nearest
from kwiki_ingest.load import Page, SourceText, find_page, hash_of, load_page, parse_page, render_page
from kwiki_ingest.page import FOLDERS_OF, Confidence, Effect, Evidence, Knob, Lesson, Status, Trigger
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import PAGE_FOLDERS, Wiki

from tests.ingest.sample_pages import WritePage

LESSON = Lesson(
    id="wide-loads",
    title='Wide loads: 128 bits, "always" # really',
    kind="tuning",
    technique="vector-width",
    arch=("sm_90a", "any"),
    aliases=("12.10", "2026-01-01", "null", "true", "向量化加载", "- dash", "a: b"),
    triggers=(Trigger(metric="global_load_bits", op="<", value=128.0),),
    knobs=(
        Knob(name="vector_bits", op="in", value=(64, 128), when="hidden_size >= 4096"),
        Knob(name="reload", op="==", value=True),
    ),
    claim="Loads of 128 bits: faster than loads of 32 bits.",
    effect=Effect(
        metric="latency_us", before=1.5, after=1e-05, unit="us", ci95=(0.5, 0.75), n=50, baseline="32 bits"
    ),
    evidence=(Evidence(run="run-1", candidates=("abc", "0012")),),
    confidence=Confidence.MEASURED,
    status=Status.CONFIRMED,
    created=dt.date(2026, 11, 30),
    last_verified=dt.date(2026, 11, 30),
)


def parse(text: str, path: str = "lessons/wide-loads.md") -> Page:
    return parse_page(SourceText(path, text, hash_of(text)), Vocabulary(None))


def test_a_rendered_page_reads_back_as_the_same_page() -> None:
    body = "Text.\n\n## Section\n\n```yaml\n---\nid: not-front-matter\n---\n```\n"
    page = parse(render_page(LESSON, body))
    assert page.front == LESSON
    assert page.body == body
    assert render_page(page.front, page.body) == render_page(LESSON, body)


def test_the_folders_that_hold_pages_are_those_of_the_page_types() -> None:
    assert set(PAGE_FOLDERS) == {folder for folders in FOLDERS_OF.values() for folder in folders}


def test_unquoted_versions_and_dates_stay_the_text_they_are(wiki: Wiki, write_page: WritePage) -> None:
    path = write_page("versions", aliases="[12.10, 2026-01-02]", title="12.10")
    front = load_page(wiki, path).front
    assert front.title == "12.10"
    assert front.aliases == ("12.10", "2026-01-02")


@pytest.mark.parametrize(("prefix", "newline"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_byte_order_mark_and_crlf_change_nothing(
    wiki: Wiki, write_page: WritePage, prefix: str, newline: str
) -> None:
    path = write_page("plain", "## A\n\nText.\n")
    plain = load_page(wiki, path)
    path.write_bytes((prefix + path.read_text().replace("\n", newline)).encode())
    assert load_page(wiki, path) == plain


@pytest.mark.parametrize(
    ("front", "line", "reason"),
    [
        ({"title": "Loads: wide"}, 3, "quote a value that contains a colon"),
        ({"title": "x\ntitle: y"}, 4, "the key `title` stands twice"),
        ({"title": "&a x"}, 3, "anchors"),
        ({"title": "!!python/name:os.system x"}, 3, "tag"),
        ({"title": "'open"}, 3, "YAML"),
        ({"title": "[1"}, 3, "YAML"),
        ({"title": "7"}, 3, "`title` must be text; put 7 in quotes"),
        ({"titel": "x"}, 10, "`titel` is not a known key; did you mean title?"),
        ({"type": "lesson"}, 7, "`sources` is not a known key"),
        ({"type": "pattern"}, 4, "belongs in patterns/, not in techniques/"),
        ({"id": "other"}, 2, "`id` is `other` but the file is `page.md`"),
        ({"arch": "[sm_90a, sm_91]"}, 5, "arch.1"),
        ({"dsl": "'4.8'"}, 10, "write a range such as"),
        ({"sources": "[]"}, 7, "sources"),
        ({"triggers": "[{metric: spill_bytes, op: '>', value: many}]"}, 10, "triggers.0.value"),
    ],
)
def test_a_broken_rule_is_named_with_its_file_and_line(
    wiki: Wiki, write_page: WritePage, front: dict[str, str], line: int, reason: str
) -> None:
    path = write_page("page", **front)
    with pytest.raises(PageError) as caught:
        load_page(wiki, path)
    assert (caught.value.path, caught.value.line) == ("techniques/page.md", line)
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "must open with a front matter block"),
        ("# Title\n", 1, "must open with a front matter block"),
        ("---\nid: a\n", 1, "not closed"),
        ("---\n---\nbody\n", 2, "must be a mapping"),
        ("---\n- a\n---\n", 2, "must be a mapping"),
        ("---\njust words\n---\n", 2, "must be a mapping"),
        ("---\nid: a\n---\n\n---\nid: a\n---\n", 5, "second `---` block"),
        ("---\na: " + "[" * 5000 + "\n---\n", 2, "nested too deeply"),
    ],
)
def test_a_malformed_block_is_named_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(PageError) as caught:
        parse(text)
    assert caught.value.line == line
    assert reason in caught.value.reason


def test_a_file_that_is_not_utf8_is_refused(wiki: Wiki, write_page: WritePage) -> None:
    path = write_page("latin")
    path.write_bytes(path.read_bytes() + b"caf\xe9")
    with pytest.raises(PageError, match="not UTF-8"):
        load_page(wiki, path)


def test_words_outside_the_vocabulary_are_refused_with_the_nearest(wiki: Wiki, write_page: WritePage) -> None:
    (wiki.root / "vocabulary.yaml").write_text(
        "symptoms: {memory-bound: Waits for memory.}\ntags: {layout: On layouts.}\n"
        "ops: {rmsnorm: Root mean square norm.}\nmetrics: {spill_bytes: Bytes spilled.}\n"
    )
    load_page(wiki, write_page("good", symptoms="[memory-bound]", tags="[layout]", op="rmsnorm"))
    for front, reason in [
        ({"symptoms": "[memory-bund]"}, "did you mean memory-bound?"),
        ({"tags": "[memory-bound]"}, "not one of the tags"),
        ({"op": "rms-norm"}, "did you mean rmsnorm?"),
        ({"triggers": "[{metric: spill_byte, op: '>', value: 0}]"}, "did you mean spill_bytes?"),
    ]:
        with pytest.raises(PageError, match="techniques/bad.md:10: .*" + reason.replace("?", r"\?")):
            load_page(wiki, write_page("bad", **front))


@pytest.mark.parametrize(
    ("text", "line"), [("symptoms: [a]\n", 1), ("tags: {}\nsmells: {}\n", 2), ("tags:\n  a: ''\n", 2)]
)
def test_a_malformed_vocabulary_is_named_with_its_line(wiki: Wiki, text: str, line: int) -> None:
    (wiki.root / "vocabulary.yaml").write_text(text)
    with pytest.raises(PageError) as caught:
        load_vocabulary(wiki)
    assert (caught.value.path, caught.value.line) == ("vocabulary.yaml", line)


def test_names_that_begin_with_the_word_are_nearest() -> None:
    assert nearest("H200", ["B200", "H100 SXM", "H200 SXM"]).startswith("did you mean H200 SXM or B200")


def test_an_unknown_page_id_names_the_nearest(wiki: Wiki, write_page: WritePage) -> None:
    write_page("vector-width")
    with pytest.raises(UnknownNameError, match="did you mean vector-width"):
        find_page(wiki, "vector-widht")
