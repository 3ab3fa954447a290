"""`wiki coverage`: what kernels use most, and which of it no page shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kwiki_ingest.cli import main
from kwiki_ingest.truth.coverage import UsedName, coverage, names_shown
from kwiki_ingest.truth.symbols import SymbolTable
from kwiki_ingest.wiki import Wiki

from tests.ingest.sample_pages import WritePage

REPOSITORY = Path(__file__).parent.parent.parent
MOST_USED = Path(__file__).parent / "gold" / "cutlass_names.json"
"""`wiki coverage --json` over hopper/ and blackwell/ of CUTLASS v4.7.0's examples, without the pages."""

ONE = """
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync as cp
from cutlass.utils import SmemAllocator

cute.copy(cp.tma_partition(), cute.copy), SmemAllocator()
"""
TWO = """
import cutlass, cutlass.utils
from cutlass import cute

cute.copy(cutlass.utils.LayoutEnum.from_tensor(x), cutlass.memory.SmemAllocator())
"""
COPY, SMEM, FROM_TENSOR, PARTITION = (
    "cutlass.cute.copy",
    "cutlass.memory.SmemAllocator",
    "cutlass.tensor_utils.LayoutEnum.from_tensor",
    "cutlass.cute.nvgpu.cpasync.tma_partition",
)


@pytest.fixture
def kernels(tmp_path: Path, symbols: SymbolTable) -> Path:
    del symbols  # it is cached
    folder = tmp_path / "kernels"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.py").write_text(ONE)
    (folder / "deep" / "two.py").write_text(TWO)
    (folder / "old.py").write_text("print 'no Python of today'\n")
    return folder


def test_names_rank_by_files_and_a_deprecated_one_counts_as_its_successor(wiki: Wiki, kernels: Path) -> None:
    assert coverage(wiki, [kernels], top=9) == [
        UsedName(COPY, 2, 3, ()),
        UsedName(SMEM, 2, 2, ()),
        UsedName(PARTITION, 1, 1, ()),
        UsedName(FROM_TENSOR, 1, 1, ()),
    ]
    assert [used.name for used in coverage(wiki, [kernels / "one.py"], top=1)] == [COPY]


def test_a_page_covers_what_its_working_code_uses(wiki: Wiki, write_page: WritePage, kernels: Path) -> None:
    write_page("one", f"```python compiles=sm_90a\n{ONE}```\n\nIn words: `LayoutEnum.from_tensor`.\n")
    write_page("two", f"```python fragment\n{TWO}```\n\n```python error=x\n{TWO}```\n")
    write_page("three", "```python runs\nimport cutlass.cute as cute\nx = cute.copy\n```\n")
    shown = {used.name: used.pages for used in coverage(wiki, [kernels], top=4)}
    assert shown == {COPY: ("one", "three"), SMEM: ("one",), PARTITION: ("one",), FROM_TENSOR: ()}


def test_the_pages_show_what_cutlass_uses_most(symbols: SymbolTable) -> None:
    names = [entry["name"] for entry in json.loads(MOST_USED.read_text())]
    shown = names_shown(Wiki(REPOSITORY / "wiki"), symbols)
    missing = [name for name in names if name not in shown]
    assert len(names) == 100
    assert len(missing) <= 5, missing


def test_the_command_lists_what_is_missing(
    wiki: Wiki, write_page: WritePage, kernels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page("one", f"```python compiles=sm_90a\n{ONE}```\n")
    command = ["coverage", "--wiki", str(wiki.root), str(kernels)]
    assert main(command) == 0
    assert capsys.readouterr().out == (
        f"{FROM_TENSOR}  1 uses in 1 files\n3 of the 4 most used names stand in working code on a page.\n"
    )
    assert main([*command, "--json", "--top", "1"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == [{"name": COPY, "files": 2, "uses": 3, "pages": ["one"]}]


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_a_folder_without_kernels_is_named(
    wiki: Wiki, kernels: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (kernels / "empty").mkdir()
    assert main(["coverage", "--wiki", str(wiki.root), str(kernels / name)]) == 1
    err = capsys.readouterr().err
    assert str(kernels / name) in err
    assert err.count("\n") == 1
