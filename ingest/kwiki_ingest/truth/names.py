"""Rules about code on the pages: what fences claim, and whether the names they use exist in the DSL."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kwiki_ingest.truth.book import Book, Finding, Leaf
from kwiki_ingest.truth.fences import Claim, ClaimError, Fence
from kwiki_ingest.truth.introspect import ROOT
from kwiki_ingest.truth.symbols import SymbolTable

FRAGMENT_SHARE = 0.1


def fence_claims(book: Book) -> Iterator[Finding]:
    """Every Python fence claims something that can be tried; at most one in ten is a fragment."""
    claims: list[Claim] = []
    for leaf in book.leaves:
        for fence in _python(leaf):
            try:
                claims.append(fence.claim())
            except ClaimError as error:
                yield Finding(leaf.path, fence.line, "claim", "error", str(error))
    fragments = sum(claim.kind == "fragment" for claim in claims)
    if fragments > max(1, FRAGMENT_SHARE * len(claims)):
        message = f"{fragments} of {len(claims)} Python fences are fragments; make whole snippets of some"
        yield Finding("index.md", 1, "fragments", "warning", message)


def api_names(book: Book) -> Iterator[Finding]:
    """Names of the DSL in `api_symbols` and in code exist in the installed version."""
    table = book.symbols
    for leaf in book.leaves:
        for position, name in enumerate(getattr(leaf.page.front, "api_symbols", ())):
            if table.get(name) is None:
                line = leaf.line_of("api_symbols", position)
                yield Finding(leaf.path, line, "api-name", "error", _unknown(name, table))
        for fence in _python(leaf):
            yield from _names_in(leaf, fence, table)


def _names_in(leaf: Leaf, fence: Fence, table: SymbolTable) -> Iterator[Finding]:
    expected = _expected_error(fence)
    try:
        tree = ast.parse(fence.code)
    except SyntaxError as error:
        if not expected:
            line = fence.line + (error.lineno or 0)
            message = f"the code is not Python ({error.msg})"
            yield Finding(leaf.path, line, "syntax", "error", message)
        return
    for offset, name in unknown_names(tree, table):
        if name.rpartition(".")[2] not in expected:
            yield Finding(leaf.path, fence.line + offset, "api-name", "error", _unknown(name, table))


def unknown_names(tree: ast.Module, table: SymbolTable) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of whatever the code takes from the DSL and the DSL does not have."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_dsl(alias.name):
                    bound[alias.asname or ROOT] = alias.name if alias.asname else ROOT
                    yield from _missing(node.lineno, alias.name.split("."), table)
        elif isinstance(node, ast.ImportFrom) and _is_dsl(node.module or "") and not node.level:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield from _missing(node.lineno, [*str(node.module).split("."), alias.name], table)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            root, *attributes = _chain(node)
            if root in bound:
                yield from _missing(node.lineno, [*bound[root].split("."), *attributes], table)


def _missing(line: int, parts: list[str], table: SymbolTable) -> Iterator[tuple[int, str]]:
    """The first part that does not exist. What a function returns or a value holds is not followed."""
    owner = table.get(parts[0])
    for part in parts[1:]:
        if owner is None or owner.kind not in ("module", "class") or part.startswith("_"):
            return
        name = f"{owner.name}.{part}"
        owner = table.get(name)
        if owner is None:
            yield line, name


def _chain(node: ast.Attribute) -> list[str]:
    """`cute.arch.exp` as its parts; empty text for a root that is no name."""
    parts = [node.attr]
    value: ast.expr = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    parts.append(value.id if isinstance(value, ast.Name) else "")
    return parts[::-1]


def _is_dsl(module: str) -> bool:
    return module.partition(".")[0] == ROOT


def _python(leaf: Leaf) -> Iterator[Fence]:
    return (fence for fence in leaf.fences if fence.is_python)


def _expected_error(fence: Fence) -> str:
    try:
        return fence.claim().text
    except ClaimError:
        return ""


def _unknown(name: str, table: SymbolTable) -> str:
    return f"nvidia-cutlass-dsl {table.dsl} has no `{name}`; {table.nearest(name)}"
