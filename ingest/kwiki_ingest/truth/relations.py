"""Rules about how pages stand to each other: ids, links, orphans, near duplicates, disputes."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from urllib.parse import unquote, urlsplit

from kwiki_ingest.errors import nearest
from kwiki_ingest.page import PageType, Status
from kwiki_ingest.truth.book import Book, Finding, Leaf, prose_of
from kwiki_ingest.wiki import PAGE_FOLDERS

INDEX = "index.md"
LINK_FIELDS = ("supersedes", "contradicts", "related")
SHINGLE_WORDS = 5
NEAR_DUPLICATE = 0.4
"""Share of common five-word runs. Pages of this wiki on neighbouring subjects stay below 0.05."""

_LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")


def unique_ids(book: Book) -> Iterator[Finding]:
    """An id belongs to one file."""
    for leaf in book.leaves:
        owner = book.by_id[leaf.page.front.id]
        if owner is not leaf:
            message = f"the id `{leaf.page.front.id}` already belongs to {owner.path}; rename one"
            yield Finding(leaf.path, leaf.line_of("id"), "id", "error", message)


def stray_files(book: Book) -> Iterator[Finding]:
    """A Markdown file outside the page folders is never searched."""
    for path in sorted(book.wiki.root.rglob("*.md")):
        place = book.wiki.relative(path)
        folder = place.partition("/")[0]
        if place != INDEX and folder not in PAGE_FOLDERS and not folder.startswith("."):
            message = f"no search finds a page in this place; move it to {', '.join(PAGE_FOLDERS)}"
            yield Finding(place, 1, "folder", "error", message)


def linked_pages(book: Book) -> Iterator[Finding]:
    """Ids in the front matter name a page, by its id or by an alias that no other page has."""
    aliases = _aliases(book)
    for leaf in book.leaves:
        front = leaf.page.front
        fields: list[tuple[tuple[str | int, ...], str]] = [
            ((name, i), one) for name in LINK_FIELDS for i, one in enumerate(getattr(front, name))
        ]
        fields += [(("superseded_by",), front.superseded_by)] if front.superseded_by else []
        for location, target in fields:
            owners = [target] if target in book.by_id else aliases.get(target.casefold(), [])
            if len(owners) == 1 and owners != [front.id]:
                continue
            reason = (
                "the page names itself" if owners == [front.id]
                else f"`{target}` is an alias of {' and '.join(owners)}; name one of them" if owners
                else f"there is no page `{target}`; {nearest(target, book.by_id)}"
            )  # fmt: skip
            yield Finding(leaf.path, leaf.line_of(*location), "link", "error", reason)


def links_in_text(book: Book) -> Iterator[Finding]:
    """Relative links in the text lead to a page of the wiki."""
    for path, prose in _texts(book):
        for line, target in _targets(prose):
            if target.startswith("#"):
                continue
            place = _resolved(path, target)
            if not (book.wiki.root / place).is_file() or place.startswith(".."):
                known = {
                    posixpath.relpath(leaf.path, posixpath.dirname(path) or "."): leaf for leaf in book.leaves
                }
                message = f"the link leads to `{target}`, which is no file; {nearest(target, known)}"
                yield Finding(path, line, "link", "error", message)


def orphans(book: Book) -> Iterator[Finding]:
    """Somebody names each reference page: another page, or the index. Lessons are found by search."""
    named: set[str] = set()
    aliases = _aliases(book)
    for leaf in book.leaves:
        front = leaf.page.front
        for target in (*front.related, *front.supersedes, *front.contradicts):
            named.update({target, *aliases.get(target, ())} - {front.id})
    for path, prose in _texts(book):
        ids = {posixpath.basename(_resolved(path, t)).removesuffix(".md") for _, t in _targets(prose)}
        named.update(ids - {posixpath.basename(path).removesuffix(".md")})
    for leaf in book.leaves:
        front = leaf.page.front
        if front.id not in named and front.type is not PageType.LESSON:
            message = "no page links here; name it in `related` of a page that leads to it"
            yield Finding(leaf.path, 1, "orphan", "warning", message)


def near_duplicates(book: Book) -> Iterator[Finding]:
    """No two pages tell the same. Lessons are compared by the gate, with their measurements."""
    pages = [leaf for leaf in book.leaves if leaf.page.front.type is not PageType.LESSON]
    titles: dict[str, Leaf] = {}
    for leaf in pages:
        first = titles.setdefault(leaf.page.front.title.casefold(), leaf)
        if first is not leaf:
            message = f"{first.path} has the same title; merge the two or tell them apart"
            yield Finding(leaf.path, leaf.line_of("title"), "duplicate", "error", message)
    shingles = {leaf.path: _shingles(leaf) for leaf in pages}
    for one, other in combinations(pages, 2):
        a, b = shingles[one.path], shingles[other.path]
        share = len(a & b) / (len(a | b) or 1)
        if share >= NEAR_DUPLICATE:
            message = f"{share:.0%} of the text also stands in {one.path}; merge the two"
            yield Finding(other.path, 1, "duplicate", "error", message)


def disputes(book: Book) -> Iterator[Finding]:
    """A dispute is marked on both sides, and waits for the experiment that decides it."""
    for leaf in book.leaves:
        front = leaf.page.front
        for position, other_id in enumerate(front.contradicts):
            other = book.by_id.get(other_id)
            if other is None:
                continue
            line = leaf.line_of("contradicts", position)
            if front.id not in other.page.front.contradicts:
                message = f"{other.path} does not name this page in `contradicts`; mark both sides"
                yield Finding(leaf.path, line, "dispute", "error", message)
            elif Status.RETIRED not in (front.status, other.page.front.status):
                message = (
                    f"the dispute with {other_id} is open; decide it by one experiment and retire the loser"
                )
                yield Finding(leaf.path, line, "dispute", "warning", message)
        if front.status is Status.DISPUTED and not front.contradicts:
            message = "the page is disputed by no page; name one in `contradicts` or change the status"
            yield Finding(leaf.path, leaf.line_of("status"), "dispute", "error", message)


def _aliases(book: Book) -> dict[str, list[str]]:
    owners: dict[str, list[str]] = defaultdict(list)
    for leaf in book.leaves:
        for alias in {alias.casefold() for alias in leaf.page.front.aliases}:
            owners[alias].append(leaf.page.front.id)
    return owners


def _texts(book: Book) -> Iterator[tuple[str, dict[int, str]]]:
    yield from ((leaf.path, leaf.prose) for leaf in book.leaves)
    index = book.wiki.root / INDEX
    if index.is_file():
        yield INDEX, prose_of(index.read_text(encoding="utf-8-sig", errors="replace"))


def _targets(prose: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Line and target of each link that stays inside the wiki."""
    for number, line in prose.items():
        for match in _LINK.finditer(line):
            parts = urlsplit(match[1])
            if not parts.scheme and not parts.netloc:
                yield number, unquote(match[1])


def _resolved(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))


def _shingles(leaf: Leaf) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z0-9_]+|[^\W\d_a-z]", " ".join(leaf.prose.values()).casefold())
    return set(zip(*(words[i:] for i in range(SHINGLE_WORDS)), strict=False))
