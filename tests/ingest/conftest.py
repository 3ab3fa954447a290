"""A small wiki of its own for every test, indexed with the hash embedder unless a test asks otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kwiki_ingest.truth.symbols import SymbolTable, installed_dsl, load_symbols
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage, page_writer

DAMAGED_TABLE = '{"stamp": [1], "symb'


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


@pytest.fixture(scope="session")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SymbolTable]:
    """The names of the installed DSL, listed once for all tests and cached where commands find them."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        (folder / f"symbols-{installed_dsl()}.json").write_text(DAMAGED_TABLE)
        patch.setenv("KERNEL_WIKI_CACHE", str(folder))
        yield load_symbols()
