"""`wiki api`: names are those of the installed DSL, and a wrong one is answered with real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kwiki_ingest.cli import main
from kwiki_ingest.errors import UnknownNameError
from kwiki_ingest.truth.symbols import SymbolTable, cache_dir, installed_dsl, load_symbols, seen_since

from tests.ingest.test_cli import cpu_s

COPY = "cutlass.cute.make_tiled_copy_tv"


@pytest.fixture
def table(symbols: SymbolTable) -> SymbolTable:
    return symbols


def test_the_table_says_what_the_installed_package_holds(table: SymbolTable) -> None:
    """A sample of names is looked up in the package itself, and of the calls their line in the source."""
    sample = [symbol for symbol in table.symbols if symbol.kind in ("class", "function", "module")][::23]
    script = """
import functools, importlib, inspect, json, sys, warnings
warnings.simplefilter("ignore")
import cutlass
for name in json.load(sys.stdin):
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:split]))
            break
        except ImportError:
            continue
    functools.reduce(getattr, parts[split:], value)
"""
    names = json.dumps([symbol.name for symbol in sample])
    subprocess.run([sys.executable, "-c", script], input=names, text=True, check=True, timeout=120)
    assert len(sample) > 200
    (symbol,) = table.find(COPY)
    assert symbol.signature == "(atom: CopyAtom, thr_layout: Layout, val_layout: Layout) -> TiledCopy"
    assert symbol.summary == "Create a tiled copy given separate thread and value layouts."
    assert (symbol.kind, symbol.file) == ("function", "cutlass/cute/atom.py")
    assert table.dsl == installed_dsl()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("cutlass.cute.make_tiled_copy_tv", COPY),
        ("cute.make_tiled_copy_tv", COPY),
        ("make_tiled_copy_tv", COPY),
        ("tcgen05.MmaF16BF16Op", "cutlass.cute.nvgpu.tcgen05.MmaF16BF16Op"),
        ("PipelineTmaUmma.create", "cutlass.pipeline.PipelineTmaUmma.create"),
        ("AddressSpace.tmem", "cutlass.AddressSpace.tmem"),
        ("cutlass.Float32.width", "cutlass.Float32.width"),
        ("cute.Tensor.load", "cutlass.cute.Tensor.load"),
    ],
)
def test_a_name_is_found_as_kernels_write_it(table: SymbolTable, asked: str, name: str) -> None:
    assert table.find(asked)[0].name == name


def test_a_name_in_several_places_comes_with_the_deprecated_last(table: SymbolTable) -> None:
    found = table.find("SmemAllocator")
    assert found[0].name == "cutlass.memory.SmemAllocator"
    assert [symbol.deprecated is not None for symbol in found][-1]
    assert "cutlass.memory.SmemAllocator" in str(found[-1].deprecated)


def test_a_new_name_is_not_called_deprecated_for_the_old_one(table: SymbolTable) -> None:
    assert table.find("cutlass.testing.benchmark")[0].deprecated is None
    assert table.find("cutlass.cute.testing.benchmark")[0].deprecated


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("cute.make_tile_copy_tv", COPY),
        ("cute.nvgpu.tcgen05.MmaF16B16Op", "cutlass.cute.nvgpu.tcgen05.MmaF16BF16Op"),
        ("PipelineTmaUma", "cutlass.pipeline.PipelineTmaUmma"),
    ],
)
def test_a_typing_error_is_answered_with_the_nearest_names(
    table: SymbolTable, asked: str, offered: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        table.find(asked)
    message = str(caught.value)
    assert message.startswith(f"nvidia-cutlass-dsl {table.dsl} has no `{asked}`; did you mean ")
    assert offered in message


def test_what_resembles_nothing_is_not_guessed(table: SymbolTable) -> None:
    with pytest.raises(UnknownNameError, match=r"has no `qqqxyzzy`; look at what a module holds"):
        table.find("qqqxyzzy")


def test_a_module_lists_what_it_holds(table: SymbolTable) -> None:
    (module,) = table.find("cutlass.pipeline")
    names = [symbol.name for symbol in table.members(module)]
    assert "cutlass.pipeline.PipelineTmaAsync" in names
    assert "cutlass.pipeline.PipelineTmaAsync.create" not in names


def test_the_command_prints_a_card_or_json_and_fails_for_a_typing_error(
    table: SymbolTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["api", "cute.make_tiled_copy_tv"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{COPY}(atom: CopyAtom,")
    assert f"  function of DSL {table.dsl}\n" in out
    assert "  cutlass/cute/atom.py:" in out
    assert err == ""
    assert main(["api", "cutlass.pipeline.PipelineTmaUmma", "--json"]) == 0
    (values,) = json.loads(capsys.readouterr().out)
    assert "cutlass.pipeline.PipelineTmaUmma.create" in values["members"]
    assert values["dsl"] == table.dsl
    assert main(["api", "cute.make_tile_copy_tv"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_a_warm_answer_imports_no_dsl(table: SymbolTable) -> None:
    del table  # it is cached
    unit = cpu_s(sys.executable, "-c", "import numpy, pydantic")
    assert cpu_s(sys.executable, "-m", "kwiki_ingest.cli", "api", "cute.copy") < 4 * unit  # 1 s at most


def test_a_damaged_cache_is_made_anew_once(table: SymbolTable) -> None:
    path = cache_dir() / f"symbols-{table.dsl}.json"  # the fixture put a damaged one there
    before = path.stat().st_mtime_ns
    assert json.loads(path.read_text())["dsl"] == table.dsl
    assert load_symbols() == table
    assert path.stat().st_mtime_ns == before


def test_the_first_version_with_a_name_is_told_from_the_versions_seen(
    table: SymbolTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = json.loads((cache_dir() / f"symbols-{table.dsl}.json").read_text())
    monkeypatch.setenv("KERNEL_WIKI_CACHE", str(tmp_path))
    assert seen_since(COPY, table) is None  # no other version was seen

    def older(version: str, *without: str) -> None:
        symbols = [entry for entry in values["symbols"] if entry["name"] not in without]
        (tmp_path / f"symbols-{version}.json").write_text(
            json.dumps(values | {"dsl": version, "symbols": symbols})
        )

    older("4.7.0", COPY, "cutlass.cute.copy")
    older("4.8.0", "cutlass.cute.copy")
    assert seen_since("cutlass.cute.copy", table) == table.dsl
    assert seen_since(COPY, table) == "4.8.0"
    assert seen_since("cutlass.cute.make_layout", table) is None  # every version seen has it
