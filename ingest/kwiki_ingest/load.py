"""Files to pages and back: read, check against every rule, render."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import ValidationError
from ruamel.yaml import YAML

from kwiki_ingest.errors import PageError, UnknownNameError, nearest
from kwiki_ingest.frontmatter import FENCE, YamlBlock, split_page
from kwiki_ingest.page import FOLDERS_OF, FrontMatter, Lesson, PageType, ReferencePage
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import Wiki


@dataclass(frozen=True)
class Page:
    """A page that satisfies every rule. `path` is relative to the wiki's root."""

    front: ReferencePage | Lesson
    body: str
    path: str
    content_hash: str


@dataclass(frozen=True)
class SourceText:
    """A page file as read: LF line ends, no byte order mark; the hash covers the whole of that text."""

    path: str
    text: str
    content_hash: str


def read_source(wiki: Wiki, path: Path) -> SourceText:
    """Read one file of the wiki. Raises PageError when it is unreadable or not UTF-8."""
    relative = wiki.relative(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PageError(
            relative, 1, f"the file is not UTF-8 (byte {error.start}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise PageError(relative, 1, f"the file cannot be read: {error.strerror}") from error
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SourceText(relative, text, hash_of(text))


def hash_of(text: str) -> str:
    """SHA-256 of a normalised text, as hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def load_page(wiki: Wiki, path: Path, vocabulary: Vocabulary | None = None) -> Page:
    """Read and check the page at `path` (absolute). Without `vocabulary` the wiki's own is read.

    Raises PageError with the file and line of the first broken rule.
    """
    vocabulary = vocabulary if vocabulary is not None else load_vocabulary(wiki)
    return parse_page(read_source(wiki, path), vocabulary)


def parse_page(source: SourceText, vocabulary: Vocabulary) -> Page:
    """Check a page's text: form, records, id, folder, versions, words. Raises PageError."""
    block, body = split_page(source.text, source.path)
    front = _validate(block)
    _check_place(block, front)
    _check_dsl(block, front)
    for location, reason in vocabulary.unknown(front):
        raise block.error(location, reason)
    return Page(front, body, source.path, source.content_hash)


def find_page(wiki: Wiki, page_id: str) -> Path:
    """The file of a page, by its id. Raises UnknownNameError naming the nearest ids."""
    files = {path.stem: path for path in wiki.page_files()}
    if page_id not in files:
        raise UnknownNameError(f"There is no page `{page_id}`; {nearest(page_id, files)}")
    return files[page_id]


def render_page(front: FrontMatter, body: str) -> str:
    """The page's text: front matter without empty fields, in the order of the record, then the body.

    `parse_page` of the result gives the same front matter and body.
    """
    values = front.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    values |= {"type": front.type.value, "dsl": front.dsl, "status": front.status.value}
    values |= {"created": front.created, "last_verified": front.last_verified}
    if isinstance(front, Lesson):
        values["confidence"] = front.confidence.value
    ordered = {name: values[name] for name in type(front).model_fields if name in values}
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.width = 110
    yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    out = io.StringIO()
    yaml.dump(ordered, out)
    return f"{FENCE}\n{out.getvalue()}{FENCE}\n\n{body.strip(chr(10))}\n"


def _validate(block: YamlBlock) -> ReferencePage | Lesson:
    values = block.values
    record = Lesson if values.get("type") == PageType.LESSON else ReferencePage
    try:
        return record.model_validate(values)
    except ValidationError as error:
        # An unknown key explains a missing one: it is usually the same word with a typing error.
        errors = error.errors(include_url=False)
        first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
        raise block.error(first["loc"], _reason(first, record.model_fields)) from error


def _reason(error: Any, fields: Sequence[str] | dict[str, Any]) -> str:
    field = ".".join(str(part) for part in error["loc"])
    match error["type"]:
        case "missing":
            return f"`{field}` is missing"
        case "extra_forbidden":
            hint = nearest(field, fields) if len(error["loc"]) == 1 else ""
            return f"`{field}` is not a known key; {hint}".rstrip("; ")
        case "value_error":
            reason = str(error["ctx"]["error"])
            return f"`{field}`: {reason}" if field else reason
        case "string_type":
            return f"`{field}` must be text; put {error['input']!r} in quotes"
    message = str(error["msg"])
    return f"`{field}`: {message[0].lower()}{message[1:]}"


def _check_place(block: YamlBlock, front: FrontMatter) -> None:
    path = Path(block.path)
    if path.stem != front.id:
        raise block.error(("id",), f"`id` is `{front.id}` but the file is `{path.name}`; name both alike")
    folders = FOLDERS_OF[front.type]
    if path.parts[0] not in folders:
        raise block.error(
            ("type",), f"a {front.type} page belongs in {' or '.join(folders)}/, not in {path.parts[0]}/"
        )


def _check_dsl(block: YamlBlock, front: FrontMatter) -> None:
    try:
        SpecifierSet(front.dsl)
    except InvalidSpecifier as error:
        raise block.error(("dsl",), f"`dsl` is `{front.dsl}`; write a range such as `>=4.8,<5`") from error
