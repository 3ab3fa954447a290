"""A lesson before it is one: a Markdown page from a file, or values from flags and answers.

Both become the text of a page and are read by the wiki's own strict loader, so that there is one
set of rules. What nobody needs to type is filled in: id, type and dates.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML

from kwiki_ingest.errors import PageError
from kwiki_ingest.frontmatter import FENCE, split_page
from kwiki_ingest.load import SourceText, hash_of, parse_page
from kwiki_ingest.page import Lesson
from kwiki_ingest.vocabulary import Vocabulary


@dataclass(frozen=True)
class Draft:
    """A lesson that satisfies the page rules, its body, and whether its author chose the id."""

    lesson: Lesson
    body: str
    has_own_id: bool


def read_draft(text: str, name: str, vocabulary: Vocabulary, today: dt.date | None = None) -> Draft:
    """Parse a page's text; `name` stands in errors. Raises PageError with the line in that text."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    block, _ = split_page(text, name)
    given = block.values
    if not isinstance(given.get("title"), str):
        raise block.error(("title",), "`title` is missing; a lesson needs one line that names it")
    if given.get("type", "lesson") != "lesson":
        raise block.error(("type",), f"`type` is `{given['type']}`; only lessons come in through add-lesson")
    page_id = str(given.get("id") or slug(given["title"]))
    date = (today or dt.date.today()).isoformat()
    missing = {"id": page_id, "type": "lesson", "created": date, "last_verified": date}
    lines = text.split("\n")
    end = next(i for i, line in enumerate(lines) if i and line.rstrip() == FENCE)
    # Added at the end of the block, so that every line of the author's keeps its number.
    lines[end:end] = [f"{key}: {value}" for key, value in missing.items() if key not in given]
    full = "\n".join(lines)
    try:
        page = parse_page(SourceText(f"lessons/{page_id}.md", full, hash_of(full)), vocabulary)
    except PageError as error:
        raise PageError(name, error.line, error.reason) from error
    if not isinstance(page.front, Lesson):
        raise PageError(name, 1, "`type` must be lesson")
    return Draft(page.front, page.body.strip("\n"), "id" in given)


def draft_text(values: Mapping[str, Any], body: str) -> str:
    """The page text of front matter values given as plain data."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 1000
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    out = io.StringIO()
    yaml.dump(dict(values), out)
    return f"{FENCE}\n{out.getvalue()}{FENCE}\n\n{body}\n"


def slug(title: str) -> str:
    """An id from a title: its ASCII words, or a number for a title that has none."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    name = "-".join(words)[:80].strip("-")
    return name or f"lesson-{hashlib.sha256(title.encode()).hexdigest()[:8]}"


def parse_comparison(text: str, field: str) -> tuple[str, str, Any]:
    """`name op value` as typed, e.g. `stages >= 3` or `vector_bits in 64,128`. Raises ValueError."""
    match = re.fullmatch(r"\s*([^\s<>=!]+)\s*(<=|>=|==|!=|<|>|\bin\b)\s*(.+?)\s*", text)
    if not match:
        raise ValueError(f"{field}: {text!r} is not of the form NAME OP VALUE, such as 'stages >= 3'")
    name, op, value = match.groups()
    if op == "in":
        return name, op, [_scalar(part) for part in value.strip("[]() ").split(",")]
    return name, op, _scalar(value)


def _scalar(text: str) -> bool | int | float | str:
    text = text.strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
