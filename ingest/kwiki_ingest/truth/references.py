"""What code takes from the DSL, by full dotted name: through imports, modules and classes.

What a function returns and what a variable holds is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from kwiki_ingest.truth.introspect import ROOT
from kwiki_ingest.truth.symbols import Symbol, SymbolTable


class Reference(NamedTuple):
    """A name of the DSL as `cutlass.cute.copy`, however the code calls it, and the line that names it."""

    line: int
    name: str


def imports(tree: ast.Module) -> Iterator[Reference]:
    """Whatever the code imports from the DSL."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Reference(node.lineno, alias.name) for alias in node.names if _is_dsl(alias.name))
        elif isinstance(node, ast.ImportFrom) and _is_dsl(node.module or "") and not node.level:
            yield from (Reference(node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def uses(tree: ast.Module) -> Iterator[Reference]:
    """Each place outside an import that names something of the DSL."""
    bound = dict(_bound(tree))
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            root, *attributes = _chain(node)
            if root in bound:
                yield Reference(node.lineno, ".".join([bound[root], *attributes]))


def resolve(name: str, table: SymbolTable) -> tuple[Symbol | None, str | None]:
    """The last part of a dotted name that the table knows, and the full name of one that is missing."""
    root, *parts = name.split(".")
    owner = table.get(root)
    for part in parts:
        if owner is None or owner.kind not in ("module", "class") or part.startswith("_"):
            break
        inside = table.get(f"{owner.name}.{part}")
        if inside is None:
            return owner, f"{owner.name}.{part}"
        owner = inside
    return owner, None


def _bound(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What each import makes the code call something, and what that is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_dsl(alias.name):
                    yield (alias.asname, alias.name) if alias.asname else (ROOT, ROOT)
        elif isinstance(node, ast.ImportFrom) and _is_dsl(node.module or "") and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _chain(node: ast.Attribute | ast.Name) -> list[str]:
    """`cute.arch.exp` as its parts; empty text for a root that is no name."""
    parts: list[str] = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    parts.append(value.id if isinstance(value, ast.Name) else "")
    return parts[::-1]


def _is_dsl(module: str) -> bool:
    return module.partition(".")[0] == ROOT
