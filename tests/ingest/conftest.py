"""A small wiki of its own for every test, indexed with the hash embedder unless a test asks otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage, page_writer


@pytest.fixture(autouse=True)
def hash_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "hash")
    monkeypatch.delenv("KERNEL_WIKI", raising=False)


@pytest.fixture
def wiki(tmp_path: Path) -> Wiki:
    root = tmp_path / "wiki"
    (root / "techniques").mkdir(parents=True)
    return Wiki(root)


@pytest.fixture
def write_page(wiki: Wiki) -> WritePage:
    return page_writer(wiki)
