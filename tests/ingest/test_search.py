"""Finding pages: by word, by meaning, by profile, and never the wrong architecture's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kwiki_ingest.errors import IndexMissingError, UnknownNameError
from kwiki_ingest.index.chroma import open_chroma
from kwiki_ingest.index.embedder import unit
from kwiki_ingest.index.sync import sync
from kwiki_ingest.page import Knob
from kwiki_ingest.search.keyword import MAX_QUERY_TERMS, match_expression, words
from kwiki_ingest.search.retrieve import Hit, by_profile, search
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage


def ids(hits: list[Hit]) -> list[str]:
    return [hit.page_id for hit in hits]


@pytest.fixture
def kernel_wiki(wiki: Wiki, write_page: WritePage) -> Wiki:
    write_page("umma", "Issue `cute.nvgpu.tcgen05.mma` from one thread.", arch="[sm_100a]")
    write_page("wgmma", "Use cute.nvgpu.warpgroup and wait for it.", arch="[sm_90a]")
    write_page("tma", "Build it with make_tiled_tma_atom; PipelineTmaUmma waits.", arch="[sm_90a, sm_100a]")
    write_page("spills", "Fewer live values.", aliases="[寄存器溢出, register spilling]", title="寄存器")
    write_page("swizzle", "Shared memory bank conflicts go away with a swizzled layout.", op="gemm")
    sync(wiki)
    return wiki


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("tcgen05.mma", "umma"),
        ("tcgen05", "umma"),
        ("cute.nvgpu.tcgen05.mma", "umma"),
        ("warpgroup", "wgmma"),
        ("nvgpu::warpgroup", "wgmma"),
        ("make_tiled_tma_atom", "tma"),
        ("tiled_tma", "tma"),
        ("PipelineTmaUmma", "tma"),
        ("pipeline umma", "tma"),
        ("寄存器溢出怎么办", "spills"),
        ("溢出", "spills"),
        ("spilling registers", "spills"),
        ("bank conflict", "swizzle"),
        ("gemm", "swizzle"),
    ],
)
def test_identifiers_their_parts_and_chinese_words_find_their_page(
    kernel_wiki: Wiki, query: str, first: str
) -> None:
    assert ids(search(kernel_wiki, query, legs=("keyword",)))[:1] == [first]


@pytest.mark.parametrize(
    "query",
    ["", "   ", "!?*()^\"'", "：，。", "\x00", '"', "AND", "how do I", "NEAR(", "-", "q:r", "zzzunknownzzz"],
)
def test_odd_queries_are_answered_without_error(kernel_wiki: Wiki, query: str) -> None:
    assert search(kernel_wiki, query, legs=("keyword",)) == []


@pytest.mark.parametrize(
    "query", ["AND swizzle* NOT (", 'title:"swizzle', "swizzle -- DROP TABLE", "C++ swizzle"]
)
def test_search_syntax_is_plain_text(kernel_wiki: Wiki, query: str) -> None:
    assert ids(search(kernel_wiki, query))[:1] == ["swizzle"]


def test_a_very_long_query_is_answered_by_its_first_words(kernel_wiki: Wiki) -> None:
    query = "bank conflicts " + " ".join(f"word{i}" for i in range(2000))
    assert len(query) > 10_000
    assert ids(search(kernel_wiki, query)) == ["swizzle"]
    assert match_expression(query).count(" OR ") == MAX_QUERY_TERMS - 1


def test_a_query_of_symbols_finds_nothing_in_either_leg(kernel_wiki: Wiki) -> None:
    assert search(kernel_wiki, "?? !! **") == []


def test_words_split_identifiers_at_every_level() -> None:
    assert list(words("cute.nvgpu.MmaF16Op sm_100a")) == [
        "cute_nvgpu_mmaf16op", "cute", "nvgpu", "mmaf16op", "mma", "f16", "op", "sm_100a", "sm", "100a",
    ]  # fmt: skip
    assert list(words("用tma加载")) == ["用", "tma", "加载"]
    assert list(words("café naïve")) == ["café", "naïve"]


@pytest.mark.parametrize("store", ["exact", "chroma"])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_no_page_of_another_architecture_leaks_in(kernel_wiki: Wiki, arch: str, store: str) -> None:
    query = "tcgen05 warpgroup tma conflicts spills"
    hits = search(kernel_wiki, query, arch=arch, k=50, store=store)
    other = {"sm_90a": "umma", "sm_100a": "wgmma"}[arch]
    assert len(hits) == 4
    assert other not in ids(hits)


@pytest.mark.parametrize(
    "wrong", [{"arch": "sm_90"}, {"statuses": ("retried",)}, {"types": ("lessons",)}], ids=str
)
def test_an_unknown_filter_is_named(kernel_wiki: Wiki, wrong: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError, match="did you mean"):
        search(kernel_wiki, "tma", **wrong)


def test_retired_and_superseded_pages_have_to_be_asked_for(wiki: Wiki, write_page: WritePage) -> None:
    write_page("standing", "zebra")
    write_page("retired", "zebra", status="retired")
    write_page("replaced", "zebra", superseded_by="standing")
    sync(wiki)
    assert ids(search(wiki, "zebra")) == ["standing"]
    everything = search(wiki, "zebra", statuses=("confirmed", "retired"))
    assert sorted(ids(everything)) == ["replaced", "retired", "standing"]


def test_type_and_dsl_version_narrow_the_answer(wiki: Wiki, write_page: WritePage) -> None:
    write_page("old", "zebra", dsl="'>=4.2,<4.6'")
    write_page("new", "zebra", dsl="'>=4.6'")
    write_page("dsl-page", "zebra", folder="dsl", type="dsl")
    sync(wiki)
    assert sorted(ids(search(wiki, "zebra", dsl="4.8.1"))) == ["dsl-page", "new"]
    assert sorted(ids(search(wiki, "zebra", dsl="4.5"))) == ["old"]
    assert ids(search(wiki, "zebra", types=("dsl",))) == ["dsl-page"]


def test_a_page_is_one_hit_with_its_best_chunk(wiki: Wiki, write_page: WritePage) -> None:
    body = "Lead.\n\n## Cause\n\nzebra zebra lion\n\n## Remedy\n\nlion\n"
    write_page("one", body, knobs="[{name: stages, op: '>=', value: 3}]")
    sync(wiki)
    (hit,) = search(wiki, "zebra lion")
    assert (hit.heading, hit.text, hit.path) == ("Cause", "zebra zebra lion", "techniques/one.md")
    assert hit.ranks == {"keyword": 1, "dense": 1}
    assert hit.knobs == (Knob(name="stages", op=">=", value=3),)
    assert hit.similarity is not None
    assert 0 < hit.similarity <= 1


def test_stronger_evidence_wins_among_equals_and_newer_among_those(wiki: Wiki, write_page: WritePage) -> None:
    write_page("a-weak", "zebra", title="Stripes", confidence="experimental")
    write_page("b-disputed", "zebra", title="Stripes", status="disputed")
    write_page("c-old", "zebra", title="Stripes", last_verified="2026-01-01")
    write_page("d-new", "zebra", title="Stripes", last_verified="2026-11-01")
    sync(wiki)
    for legs in (("keyword",), ("dense",), ("keyword", "dense")):
        hits = search(wiki, "zebra stripes", legs=legs)
        assert [hit.ranks for hit in hits] == [dict.fromkeys(legs, 1)] * 4
        assert ids(hits)[:2] == ["d-new", "c-old"]


def test_exact_vectors_and_chroma_give_the_same_hits(wiki: Wiki, write_page: WritePage) -> None:
    nouns = ["tile", "warp", "swizzle", "barrier", "stage", "cluster", "register", "vector"]
    for number in range(60):
        sections = [
            f"## Part {part}\n\n{nouns[(number + part) % 8]} {nouns[(number * 3) % 8]} text{number % 7}\n"
            for part in range(4)
        ]
        arch = ["any", "sm_90a", "sm_100a"][number % 3]
        write_page(f"page-{number}", "\n".join(sections), arch=f"[{arch}]")
    sync(wiki)
    for query in (*nouns, "tile warp text3", "a barrier for each stage", "page 17"):
        for arch in (None, "sm_90a"):
            exact = search(wiki, query, arch=arch, k=20)
            assert exact == search(wiki, query, arch=arch, k=20, store="chroma")
            assert exact


def test_chroma_finds_nearly_all_exact_neighbours(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    vectors = unit(random.standard_normal((4000, 64)).astype(np.float32))
    rows = [(f"{i:04}", "page", vector.tobytes()) for i, vector in enumerate(vectors)]
    queries = unit(random.standard_normal((20, 64)).astype(np.float32))
    with open_chroma(tmp_path, fresh=True) as chroma:
        chroma.replace((), rows)
        found = [set(chroma.nearest(query, 400)) for query in queries]
    exact = [{f"{i:04}" for i in np.argsort(vectors @ query)[-10:]} for query in queries]
    recall = sum(len(near & all_near) for near, all_near in zip(found, exact, strict=True)) / 200
    assert recall >= 0.99


def test_a_page_says_where_its_advice_ends_but_is_not_found_by_it(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", "zebra", valid_when="the lion sleeps", not_when="the tiger hunts")
    sync(wiki)
    (hit,) = search(wiki, "lion")
    assert (hit.valid_when, hit.not_when) == ("the lion sleeps", "the tiger hunts")
    assert search(wiki, "tiger") == []


def test_a_profile_selects_pages_whose_triggers_all_hold(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", triggers="[{metric: spill_bytes, op: '>', value: 0}]")
    both = "[{metric: spill_bytes, op: '>', value: 0}, {metric: occupancy, op: '<=', value: 0.25}]"
    write_page("both", triggers=both)
    write_page("hopper", triggers="[{metric: spill_bytes, op: '>', value: 0}]", arch="[sm_90a]")
    write_page("none")
    sync(wiki)
    assert ids(by_profile(wiki, {"spill_bytes": 8, "occupancy": 0.25}, "sm_100a")) == ["both", "one"]
    assert ids(by_profile(wiki, {"spill_bytes": 8, "occupancy": 0.5})) == ["hopper", "one"]
    assert ids(by_profile(wiki, {"spill_bytes": 0})) == []
    assert ids(by_profile(wiki, {})) == []


def test_a_trigger_that_bears_on_nothing_diagnosed_selects_no_page(wiki: Wiki, write_page: WritePage) -> None:
    trigger = "[{metric: traffic_ratio, op: '>', value: 1.3}]"
    write_page("traffic", "Read once.", triggers=trigger, symptoms="[redundant-traffic]")
    sync(wiki)
    far_off = {"traffic_ratio": 4.0}
    assert ids(by_profile(wiki, far_off, symptoms=["redundant-traffic"])) == ["traffic"]
    assert ids(by_profile(wiki, far_off, symptoms=["compute-bound"])) == []


def test_without_an_index_the_next_step_is_named(wiki: Wiki) -> None:
    with pytest.raises(IndexMissingError, match="run `wiki sync`"):
        search(wiki, "anything")


def test_an_empty_wiki_answers_nothing(wiki: Wiki) -> None:
    sync(wiki)
    assert search(wiki, "anything", store="chroma") == []
