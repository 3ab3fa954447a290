"""Rules about code on the pages: what fences claim, and whether the names they use exist in the DSL."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kwiki_ingest.truth.book import Book, Finding, Leaf
from kwiki_ingest.truth.fences import Claim, ClaimError, Fence
from kwiki_ingest.truth.references import Reference, imports, resolve, uses
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


def unknown_names(tree: ast.Module, table: SymbolTable) -> Iterator[Reference]:
    """What the code takes from the DSL and the DSL does not have, up to the first part that is missing."""
    imported = {name: line for line, name in reversed([*imports(tree)])}
    for name, line in imported.items():
        _, missing = resolve(name, table)
        if missing:
            yield Reference(line, missing)
    for line, name in uses(tree):
        _, missing = resolve(name, table)
        if missing and missing not in imported:  # once for its import is enough
            yield Reference(line, missing)


def _python(leaf: Leaf) -> Iterator[Fence]:
    return (fence for fence in leaf.fences if fence.is_python)


def _expected_error(fence: Fence) -> str:
    try:
        return fence.claim().text
    except ClaimError:
        return ""


def _unknown(name: str, table: SymbolTable) -> str:
    return f"nvidia-cutlass-dsl {table.dsl} has no `{name}`; {table.nearest(name)}"
