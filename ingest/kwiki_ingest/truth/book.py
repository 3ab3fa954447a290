"""What the rules of `wiki lint` look at, and what they report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from kwiki_ingest.errors import PageError
from kwiki_ingest.frontmatter import YamlBlock, split_page
from kwiki_ingest.load import Page, SourceText, parse_page, read_source
from kwiki_ingest.truth.fences import Fence, fences
from kwiki_ingest.truth.symbols import SymbolTable
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import Wiki

Level = Literal["error", "warning"]

_INLINE_CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True, order=True)
class Finding:
    """A broken rule. `path` is relative to the wiki, `line` counts from 1."""

    path: str
    line: int
    rule: str
    level: Level
    message: str


@dataclass(frozen=True)
class Leaf:
    """A good page as a file: its record, and its text by line."""

    page: Page
    source: SourceText

    @property
    def path(self) -> str:
        return self.source.path

    @cached_property
    def block(self) -> YamlBlock:
        return split_page(self.source.text, self.path)[0]

    @cached_property
    def fences(self) -> list[Fence]:
        return list(fences(self.source.text))

    @cached_property
    def prose(self) -> dict[int, str]:
        """The body's lines outside code fences by their number in the file, inline code blanked out."""
        return prose_of(self.source.text)

    def line_of(self, *location: str | int) -> int:
        """The line of a field of the front matter."""
        return self.block.line_of(location)


@dataclass(frozen=True)
class Book:
    """All of a wiki: the pages that are good, what is wrong with the others, and the DSL they speak of."""

    wiki: Wiki
    leaves: tuple[Leaf, ...]
    broken: tuple[PageError, ...]
    symbols: SymbolTable

    @cached_property
    def by_id(self) -> dict[str, Leaf]:
        """Pages by id; of two with one id, the first by path."""
        return {leaf.page.front.id: leaf for leaf in reversed(self.leaves)}


def open_book(wiki: Wiki, symbols: SymbolTable) -> Book:
    """Read every page. A page that breaks a rule is kept as its first error."""
    broken: list[PageError] = []
    try:
        vocabulary = load_vocabulary(wiki)
    except PageError as problem:
        vocabulary = Vocabulary(None)
        broken.append(problem)
    leaves = []
    for path in wiki.page_files():
        try:
            source = read_source(wiki, path)
            leaves.append(Leaf(parse_page(source, vocabulary), source))
        except PageError as problem:
            broken.append(problem)
    return Book(wiki, tuple(leaves), tuple(broken), symbols)


def prose_of(text: str) -> dict[int, str]:
    """Lines outside front matter and code fences by number, with inline code blanked out."""
    lines = dict(enumerate(text.split("\n"), 1))
    if lines[1].rstrip() == "---":
        end = next((n for n, line in lines.items() if n > 1 and line.rstrip() == "---"), 1)
        lines = {n: line for n, line in lines.items() if n > end}
    for fence in fences(text):
        for number in range(fence.line, fence.line + fence.code.count("\n") + 2):
            lines.pop(number, None)
    return {n: _INLINE_CODE.sub(lambda found: " " * len(found[0]), line) for n, line in lines.items()}


def sections(prose: dict[int, str]) -> Iterator[dict[int, str]]:
    """The prose from each H2 heading to the next, and what stands before the first."""
    section: dict[int, str] = {}
    for number, line in prose.items():
        if line.startswith("## ") and section:
            yield section
            section = {}
        section[number] = line
    if section:
        yield section
