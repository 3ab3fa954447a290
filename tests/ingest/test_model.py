"""The model: which one, the same vectors by either runner, and meaning in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from kwiki_ingest.errors import ModelError
from kwiki_ingest.index import model
from kwiki_ingest.index.model import MANY_TEXTS, PACKAGED_SHA256, choose_model
from kwiki_ingest.index.sync import sync
from kwiki_ingest.search.retrieve import search
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage

TEXTS = [
    "",
    "a",
    "How do I avoid shared memory bank conflicts in cute.nvgpu.tcgen05.mma?",
    "café naïve ÀÉ 中文查询 寄存器 emoji 🚀",
    "x" * 3000,
    "A sentence of several words. " * 100,
]


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KERNEL_WIKI_MODEL")
    folder = choose_model().folder
    assert folder is not None
    return folder


@pytest.mark.usefixtures("packaged")
def test_the_numpy_runner_equals_sentence_transformers() -> None:
    choice = choose_model()
    assert choice.identity == f"all-MiniLM-L6-v2@{PACKAGED_SHA256}"
    light, full = choice.embedder(1), choice.embedder(MANY_TEXTS)
    assert type(light).__name__ == "MiniLM"
    assert type(full).__name__ == "SentenceTransformerEmbedder"
    assert (light.identity, light.dims) == (full.identity, full.dims)
    cosines = (light.encode(TEXTS) * full.encode(TEXTS)).sum(1)
    assert cosines.min() > 1 - 1e-5
    assert np.dot(light.encode_query(TEXTS[2]), full.encode_query(TEXTS[2])) > 1 - 1e-5
    assert [light.count_tokens(text) for text in TEXTS[:4]] == [full.count_tokens(text) for text in TEXTS[:4]]


@pytest.mark.usefixtures("packaged")
def test_vectors_have_length_one_whatever_the_batch() -> None:
    embedder = choose_model().embedder()
    together = embedder.encode(TEXTS)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.stack([embedder.encode([text])[0] for text in TEXTS])
    assert np.allclose(together, alone, atol=1e-5)


@pytest.mark.usefixtures("packaged")
def test_the_dense_leg_finds_what_shares_no_word(wiki: Wiki, write_page: WritePage) -> None:
    write_page("cooking", "Boil the potatoes in salted water and mash them with butter.", title="Dinner")
    write_page("traffic", "Every car waits at the crossing until the light turns green.", title="Road")
    write_page("bread", "Knead flour, yeast and water, let the dough rise, then bake.", title="Loaf")
    sync(wiki)
    query = "vehicles stopping for a signal"
    assert search(wiki, query, legs=("keyword",)) == []
    for store in ("exact", "chroma"):
        assert [hit.page_id for hit in search(wiki, query, store=store)] == ["traffic"]


@pytest.mark.usefixtures("packaged")
def test_a_recorded_stamp_spares_hashing_the_weights() -> None:
    choice = choose_model()
    recorded = {"model_stamp": choice.stamp, "model": "as-recorded@" + PACKAGED_SHA256}
    assert choose_model(recorded).identity == recorded["model"]
    assert choose_model({**recorded, "model_stamp": "other"}).identity == choice.identity


def test_a_configured_folder_is_used_and_named_by_its_own_hash(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tuned"
    shutil.copytree(packaged, folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x00\x00\x00\x00")
    monkeypatch.setenv("KERNEL_WIKI_MODEL", str(folder))
    choice = choose_model()
    assert choice.identity.startswith("tuned@")
    assert not choice.identity.endswith(PACKAGED_SHA256)
    assert choice.embedder().encode_query("text").shape == (384,)


def test_a_configured_model_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_WIKI_MODEL", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="nowhere, which holds no model"):
        choose_model()


@pytest.mark.usefixtures("packaged")
@pytest.mark.parametrize(
    ("constant", "value", "warning"),
    [
        ("PACKAGE", "no_such_package", "No embedding model is installed"),
        ("PACKAGED_SHA256", "0" * 64, "The packaged model is damaged"),
    ],
)
def test_without_a_sound_model_keywords_still_answer_and_it_is_said(
    wiki: Wiki,
    write_page: WritePage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    constant: str,
    value: str,
    warning: str,
) -> None:
    monkeypatch.setattr(model, constant, value)
    write_page("one", "zebra")
    assert sync(wiki).encoded == 0
    assert [hit.ranks for hit in search(wiki, "zebra")] == [{"keyword": 1}]
    assert warning in caplog.text
    assert "only keywords are searched" in caplog.text


def test_damaged_weights_are_named(packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(packaged, folder)
    (folder / "model.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00not json at all")
    monkeypatch.setenv("KERNEL_WIKI_MODEL", str(folder))
    with pytest.raises(ModelError, match="are damaged"):
        choose_model().embedder().encode_query("text")
