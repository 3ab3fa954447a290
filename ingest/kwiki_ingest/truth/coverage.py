"""How much of what kernels use the wiki shows: `wiki coverage`.

Kernels of others, such as the examples of a library, say which names of the DSL matter. A name is covered
where a page uses it in code that is tried.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kwiki_ingest.errors import WikiError
from kwiki_ingest.truth.book import open_book
from kwiki_ingest.truth.fences import ClaimError, Fence
from kwiki_ingest.truth.references import resolve, uses
from kwiki_ingest.truth.symbols import Symbol, SymbolTable, load_symbols
from kwiki_ingest.wiki import Wiki

SHOWS = ("compiles", "runs")
"""Claims of a fence whose code works."""

_SUCCESSOR = re.compile(r"\buse ([\w.]+) instead")


@dataclass(frozen=True)
class UsedName:
    """A name of the DSL: how many files of kernels use it, how often, and the ids of pages that show it."""

    name: str
    files: int
    uses: int
    pages: tuple[str, ...]


def coverage(wiki: Wiki, kernels: Sequence[Path], top: int) -> list[UsedName]:
    """The `top` names that most files under `kernels` use, most used first.

    A deprecated name counts as the one that replaced it. Raises WikiError if no file uses the DSL, and
    DslError without a DSL.
    """
    table = load_symbols()
    used = _used(kernels, table)
    shown = names_shown(wiki, table)
    ranked = sorted(used, key=lambda name: (-len(used[name]), -used[name].total(), name))
    return [
        UsedName(name, len(used[name]), used[name].total(), tuple(sorted(shown.get(name, ()))))
        for name in ranked[:top]
    ]


def names_shown(wiki: Wiki, table: SymbolTable) -> dict[str, set[str]]:
    """Every name of the DSL that the pages' working code uses, with the ids of those pages."""
    found: dict[str, set[str]] = defaultdict(set)
    for leaf in open_book(wiki, table).leaves:
        for fence in leaf.fences:
            if _works(fence):
                for name in _names(ast.parse(fence.code), table):
                    found[name].add(leaf.page.front.id)
    return dict(found)


def _used(kernels: Sequence[Path], table: SymbolTable) -> dict[str, Counter[Path]]:
    """How often each file uses each name. What is no Python of this version is passed over."""
    found: dict[str, Counter[Path]] = defaultdict(Counter)
    for path in _python_files(kernels):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for name in _names(tree, table):
            found[name][path] += 1
    if not found:
        raise WikiError(f"no Python file under {' or '.join(map(str, kernels))} uses the DSL; name others.")
    return found


def _works(fence: Fence) -> bool:
    try:
        return fence.is_python and fence.claim().kind in SHOWS and bool(ast.parse(fence.code))
    except (ClaimError, SyntaxError):
        return False


def _names(tree: ast.Module, table: SymbolTable) -> Iterator[str]:
    for reference in uses(tree):
        symbol, _ = resolve(reference.name, table)
        if symbol and symbol.kind != "module":
            yield _current(symbol, table)


def _current(symbol: Symbol, table: SymbolTable) -> str:
    """The name that replaced a deprecated one or a deprecated class's member, where the DSL says which."""
    owner, _, member = symbol.name.rpartition(".")
    for old, rest in ((symbol, ""), (table.get(owner), f".{member}")):
        successor = _SUCCESSOR.search((old and old.deprecated) or "")
        new = successor and (table.get(successor[1] + rest) or table.get(f"cutlass.{successor[1]}{rest}"))
        if new:
            return new.name
    return symbol.name


def _python_files(kernels: Sequence[Path]) -> list[Path]:
    for path in kernels:
        if not path.exists():
            raise WikiError(f"{path} does not exist; name a folder of kernels.")
    return sorted({file for path in kernels for file in ([path] if path.is_file() else path.rglob("*.py"))})
