"""Pages to chunks: one per H2 or H3 section, never longer than the embedder can read.

A chunk is embedded together with its breadcrumb (`title > section`), and both together fit `limit` word
pieces of the embedder's own tokenizer: what does not fit would be cut off silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kwiki_ingest.load import Page
from kwiki_ingest.page import Lesson

LIMIT_TOKENS = 240
"""Word pieces per chunk with breadcrumb; MiniLM reads 256 including its two marks."""

_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")

CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class Chunk:
    """A retrieval unit. `heading` is empty for the lead; `embedded` is what the embedder sees."""

    heading: str
    text: str
    embedded: str


def chunk_page(page: Page, count_tokens: CountTokens, limit: int = LIMIT_TOKENS) -> list[Chunk]:
    """The page's chunks in reading order; at least one, even for an empty body."""
    chunks = []
    for heading, text in _sections(page):
        crumb = _breadcrumb(page.front.title, heading, count_tokens, limit // 2)
        room = limit - count_tokens(crumb)
        for part in _pack(_blocks(text), count_tokens, room):
            chunks.append(Chunk(heading, part, f"{crumb}\n{part}"))
    return chunks or [Chunk("", page.front.title, page.front.title)]


def _breadcrumb(title: str, heading: str, count_tokens: CountTokens, limit: int) -> str:
    crumb = f"{title} > {heading}" if heading else title
    return next(_split_long(crumb, count_tokens, limit))


def _sections(page: Page) -> Iterator[tuple[str, str]]:
    """Heading path and text of each section; the lead carries the claim and where it holds."""
    heading, lines = "", [_lead(page)]
    parent = ""
    fence: str | None = None
    for line in page.body.split("\n"):
        fence = _fence_after(fence, line)
        match = _HEADING.match(line) if fence is None else None
        if match is None or len(match[1]) > 3:
            lines.append(line)
            continue
        yield heading, "\n".join(lines)
        level, name = len(match[1]), match[2]
        parent = name if level == 2 else parent if level == 3 else ""
        heading = "" if level == 1 else f"{parent} > {name}" if level == 3 and parent else name
        lines = []
    yield heading, "\n".join(lines)


def _lead(page: Page) -> str:
    """Front matter that answers questions: the claim, its effect, when it holds.

    `not_when` stays out: it would find the page for the very questions that it is no answer to.
    """
    front = page.front
    lines = []
    if isinstance(front, Lesson):
        lines.append(front.claim)
        if front.effect:
            e = front.effect
            lines.append(f"Measured: {e.metric} {e.before:g} to {e.after:g} {e.unit}, against {e.baseline}.")
    if front.valid_when:
        lines.append(f"Applies when: {front.valid_when}")
    return "\n".join(lines) + "\n"


def _fence_after(fence: str | None, line: str) -> str | None:
    """The open code fence after `line`, given the one open before it."""
    match = _FENCE.match(line)
    if match is None:
        return fence
    mark = match[1]
    if fence is None:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and line.strip() == mark
    return None if closes else fence


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs and whole code fences."""
    block: list[str] = []
    fence: str | None = None
    for line in text.split("\n"):
        before, fence = fence, _fence_after(fence, line)
        ends_here = before is not None and fence is None
        if before is None and (fence is not None or not line.strip()):
            if block:
                yield "\n".join(block)
            block = []
        if line.strip() or before is not None:
            block.append(line)
        if ends_here:
            yield "\n".join(block)
            block = []
    if block:
        yield "\n".join(block)


def _pack(blocks: Iterable[str], count_tokens: CountTokens, room: int) -> Iterator[str]:
    """Join neighbouring blocks as long as they fit; split those that do not fit alone."""
    packed: list[str] = []
    used = 0
    for block in blocks:
        for piece in _fit(block, count_tokens, room):
            size = count_tokens(piece)
            if packed and used + size > room:
                yield "\n\n".join(packed)
                packed, used = [], 0
            packed.append(piece)
            used += size
    if packed:
        yield "\n\n".join(packed)


def _fit(block: str, count_tokens: CountTokens, room: int) -> Iterator[str]:
    if count_tokens(block) <= room:
        yield block
        return
    if not _FENCE.match(block):
        yield from _split_long(block, count_tokens, room)
        return
    opening, *code = block.split("\n")
    mark = _FENCE.match(block)[1]  # type: ignore[index]
    if code and code[-1].strip() == mark:
        code.pop()
    frame = count_tokens(f"{opening}\n{mark}")
    if frame > room // 2:  # an absurd info string: the code matters more
        opening, frame = mark, 2 * count_tokens(mark)
    for part in _split_long("\n".join(code), count_tokens, room - frame):
        yield f"{opening}\n{part}\n{mark}"


def _split_long(text: str, count_tokens: CountTokens, room: int) -> Iterator[str]:
    """Split at the largest of line, sentence, word and character that makes the parts fit."""
    if count_tokens(text) <= room:
        yield text
        return
    for separator in ("\n", ". ", " "):
        parts = [part for part in text.split(separator) if part.strip()]
        if len(parts) > 1:
            break
    else:
        separator, middle = "", len(text) // 2
        parts = [text[:middle], text[middle:]]
    held = ""
    for part in parts:
        joined = f"{held}{separator}{part}" if held else part
        if count_tokens(joined) <= room:
            held = joined
            continue
        if held:
            yield held
        *full, held = _split_long(part, count_tokens, room)
        yield from full
    if held:
        yield held
