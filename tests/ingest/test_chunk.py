"""Cutting pages into chunks that the embedder reads whole."""

from __future__ import annotations

import pytest
from kwiki_ingest.chunk import LIMIT_TOKENS, Chunk, chunk_page
from kwiki_ingest.index.embedder import Embedder, HashEmbedder
from kwiki_ingest.index.model import choose_model
from kwiki_ingest.load import load_page
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage


@pytest.fixture(params=["hash", "packaged"])
def embedder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Embedder:
    if request.param == "packaged":
        monkeypatch.delenv("KERNEL_WIKI_MODEL")
    return choose_model().embedder()


def chunks_of(wiki: Wiki, write_page: WritePage, body: str, embedder: Embedder, **front: str) -> list[Chunk]:
    page = load_page(wiki, write_page("page", body, **front))
    return chunk_page(page, embedder.count_tokens)


def test_each_section_is_a_chunk_under_its_breadcrumb(wiki: Wiki, write_page: WritePage) -> None:
    body = "Lead.\n\n## One\n\nFirst.\n\n### Deep\n\nSecond.\n\n## Two\n\nThird.\n\n#### Small\n\nFourth.\n"
    chunks = chunks_of(wiki, write_page, body, HashEmbedder(), valid_when="always", not_when="never")
    assert [chunk.heading for chunk in chunks] == ["", "One", "One > Deep", "Two"]
    assert chunks[0].text == "Applies when: always\n\nLead."
    assert chunks[2].embedded == "About page > One > Deep\nSecond."
    assert "Fourth." in chunks[3].text


def test_headings_inside_code_fences_are_code(wiki: Wiki, write_page: WritePage) -> None:
    body = "## One\n\n```python\n## not a heading\n\nx = 1\n```\n\n~~~~\n```\n## nor this\n~~~~\n"
    chunks = chunks_of(wiki, write_page, body, HashEmbedder())
    assert [chunk.heading for chunk in chunks] == ["One"]
    assert "## not a heading\n\nx = 1" in chunks[0].text
    assert "## nor this" in chunks[0].text


LONG_BODIES = {
    "prose": "A sentence on shared memory. " * 400,
    "one word": "x" * 20_000,
    "chinese": "寄存器溢出会让内核变慢。" * 300,
    "code": "```python compiles=sm_90a\n" + "value = value + 1  # step\n" * 300 + "```\n",
    "unclosed fence": "```python\n" + "value = value + 1\n" * 300,
    "absurd info string": "```" + "python " * 300 + "\nx = 1\n```\n",
    "table": "| a | b |\n|---|---|\n" + "| 1.25 us | `cute.copy` |\n" * 200,
    "long heading": "## " + "tiled copy " * 200 + "\n\nText.\n",
}


@pytest.mark.parametrize("body", LONG_BODIES.values(), ids=LONG_BODIES)
def test_no_chunk_is_longer_than_the_embedder_reads(
    wiki: Wiki, write_page: WritePage, embedder: Embedder, body: str
) -> None:
    for chunk in chunks_of(wiki, write_page, body, embedder):
        assert embedder.count_tokens(chunk.embedded) <= LIMIT_TOKENS


def test_splitting_loses_no_words_and_keeps_code_fenced(wiki: Wiki, write_page: WritePage) -> None:
    lines = [f"value_{i} = load({i})" for i in range(300)]
    body = "Before.\n\n```python\n" + "\n".join(lines) + "\n```\n\nAfter.\n"
    chunks = chunks_of(wiki, write_page, body, HashEmbedder())
    joined = "\n".join(chunk.text for chunk in chunks)
    assert [line for line in joined.split("\n") if line.startswith("value_")] == lines
    assert len(chunks) > 2
    assert all(chunk.text.count("```") == 2 for chunk in chunks)


def test_a_fence_that_fits_is_kept_whole(wiki: Wiki, write_page: WritePage) -> None:
    code = "```python\n" + "a = b\n" * 40 + "```"
    body = "words " * 150 + "\n\n" + code + "\n"
    chunks = chunks_of(wiki, write_page, body, HashEmbedder())
    assert [code in chunk.text for chunk in chunks] == [False, True]


def test_an_empty_body_still_gives_a_chunk(wiki: Wiki, write_page: WritePage) -> None:
    chunks = chunks_of(wiki, write_page, "", HashEmbedder())
    assert [chunk.text for chunk in chunks] == ["About page"]
