"""Every rule that a wiki keeps, as one list of findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kwiki_ingest.truth import facts, measured, names, relations
from kwiki_ingest.truth.book import Book, Finding, open_book
from kwiki_ingest.truth.symbols import SymbolTable, load_symbols
from kwiki_ingest.wiki import Wiki

RULES: tuple[Callable[[Book], Iterator[Finding]], ...] = (
    relations.unique_ids,
    relations.stray_files,
    relations.linked_pages,
    relations.links_in_text,
    relations.orphans,
    relations.near_duplicates,
    relations.disputes,
    facts.data_files,
    facts.source_forms,
    measured.evidence_exists,
    measured.cited_figures,
    facts.sourced_numbers,
    facts.versions,
    names.fence_claims,
    names.api_names,
)


def lint(wiki: Wiki, *, symbols: SymbolTable | None = None, clones: Path | None = None) -> list[Finding]:
    """All findings, by file and line. A page that breaks its schema is checked no further.

    `symbols` defaults to the installed DSL's. `clones` holds repositories as OWNER/NAME or NAME, in which the
    sources are looked up. Raises DslError without a DSL.
    """
    book = open_book(wiki, symbols or load_symbols())
    findings = [Finding(p.path, p.line, "schema", "error", p.reason) for p in book.broken]
    findings += [*facts.encodings(wiki), *facts.unsafe_text(wiki)]
    for rule in RULES:
        findings += rule(book)
    if clones is not None:
        findings += facts.sources_exist(book, clones)
    return sorted(findings)
