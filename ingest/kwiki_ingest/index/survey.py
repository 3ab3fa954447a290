"""What the files say now, against what the manifest holds: pages to store, to keep, and broken ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kwiki_ingest.errors import PageError
from kwiki_ingest.index.freshness import describe
from kwiki_ingest.index.manifest import FileRow
from kwiki_ingest.load import Page, SourceText, hash_of, parse_page, read_source
from kwiki_ingest.vocabulary import FILE as VOCABULARY_FILE
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import Wiki

Indexed = Mapping[str, tuple[str, str]]
"""Path and content hash of the stored pages, by id."""


@dataclass
class Survey:
    """`changed` are good pages that the manifest lacks in this form, by id; `kept` are ids it has already.

    `files` describes every file, `problems` has an error for every broken one.
    """

    vocabulary_hash: str
    changed: dict[str, Page] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    files: list[FileRow] = field(default_factory=list)
    problems: list[PageError] = field(default_factory=list)

    def owner(self, page_id: str) -> str | None:
        """The file that already has this id."""
        return self.changed[page_id].path if page_id in self.changed else self.kept.get(page_id)


def survey(wiki: Wiki, indexed: Indexed, vocabulary_hash: str | None) -> Survey:
    """Read every page file, and check those that are not in `indexed` as they are.

    All are checked again when the vocabulary is not the one of `vocabulary_hash`.
    """
    vocabulary, result = _start(wiki)
    same_words = result.vocabulary_hash == vocabulary_hash
    paths = list(wiki.page_files())
    # Of two files with one id the first by path has it, whichever was indexed before: a rebuild agrees.
    copies = Counter(path.stem for path in paths)
    for path in paths:
        trusted = indexed if same_words and copies[path.stem] == 1 else {}
        try:
            # Before reading: an edit in between then shows as stale, never as fresh.
            result.files.append(describe(wiki, path))
            _examine(read_source(wiki, path), vocabulary, indexed, trusted, result)
        except FileNotFoundError:  # deleted since it was listed
            continue
        except PageError as problem:
            result.problems.append(problem)
    return result


def _start(wiki: Wiki) -> tuple[Vocabulary, Survey]:
    """The wiki's words. A broken vocabulary is a problem, and until it is mended no words are checked."""
    path = wiki.root / VOCABULARY_FILE
    try:
        vocabulary = load_vocabulary(wiki)
    except PageError as problem:
        return Vocabulary(None), Survey("broken", problems=[problem])
    return vocabulary, Survey(hash_of(path.read_text(encoding="utf-8-sig")) if path.exists() else "none")


def _examine(
    source: SourceText, vocabulary: Vocabulary, indexed: Indexed, trusted: Indexed, result: Survey
) -> None:
    """Sort one file into `result`: kept as stored, or changed. Raises PageError."""
    page_id = Path(source.path).stem
    state = (source.path, source.content_hash)
    if trusted.get(page_id) == state:
        result.kept[page_id] = source.path
        return
    page = parse_page(source, vocabulary)
    owner = result.owner(page_id)
    if owner:
        raise PageError(source.path, 1, f"the id `{page_id}` already belongs to {owner}; rename one")
    if indexed.get(page_id) == state:
        result.kept[page_id] = source.path
    else:
        result.changed[page_id] = page
