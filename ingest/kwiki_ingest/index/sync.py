"""Bring the index in step with the Markdown files: one writer, only what changed, repairable at any point.

Order matters for crashes. Encoding comes first and touches nothing; then one SQLite transaction makes the
manifest new; then Chroma follows. A stop before the transaction leaves the old index, a stop after it
leaves Chroma behind, which the recorded revisions show and the next sync repairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

import filelock
import numpy as np

from kwiki_ingest.chunk import Chunk, chunk_page
from kwiki_ingest.errors import IndexBusyError, PageError, WikiIndexError
from kwiki_ingest.index.embedder import HashEmbedder, Progress
from kwiki_ingest.index.manifest import ChunkRow, FileRow, Manifest, open_for_writing
from kwiki_ingest.index.model import ModelChoice, choose_model
from kwiki_ingest.load import Page, SourceText, hash_of, parse_page, read_source
from kwiki_ingest.search.keyword import words
from kwiki_ingest.vocabulary import FILE as VOCABULARY_FILE
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import Wiki

PIPELINE_VERSION = 1
"""Raise it when chunking, index words or embedded text change: every index is then rebuilt."""


@dataclass(frozen=True)
class SyncReport:
    """What a sync did: page ids by fate, pages that broke a rule, chunks encoded, why all was rebuilt."""

    added: tuple[str, ...]
    updated: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    problems: tuple[PageError, ...]
    encoded: int
    rebuilt: str | None = None


@dataclass(frozen=True)
class _Reading:
    """The files as they are now: good pages to store, ids to keep as stored, and a row for every file."""

    parsed: Mapping[str, Page]
    kept: frozenset[str]
    files: tuple[FileRow, ...]
    problems: tuple[PageError, ...]
    vocabulary_hash: str


def sync(wiki: Wiki, *, progress: Progress | None = None, lock_timeout_s: float = 10.0) -> SyncReport:
    """Index every page of the wiki; pages that break a rule are reported and left out.

    `progress` hears of chunks encoded. Raises IndexBusyError when another process writes for longer than
    `lock_timeout_s`, WikiIndexError when the index cannot be written (what was indexed before stays).
    """
    with writer_lock(wiki, lock_timeout_s), open_for_writing(wiki.index_dir) as manifest:
        model = choose_model(manifest.meta())
        rebuilt = _reason_to_rebuild(manifest, model)
        known = {} if rebuilt else manifest.pages()
        reading = _read(wiki, manifest, known, rebuilt is not None)
        chunks, encoded = _chunk_and_encode(reading.parsed, manifest, model, rebuilt is not None, progress)
        removed = known.keys() - reading.kept - reading.parsed.keys()
        _store(manifest, model, reading, chunks, removed, rebuilt is not None)
        _bring_chroma_in_step(wiki, manifest, removed | reading.parsed.keys())
    return SyncReport(
        added=tuple(sorted(reading.parsed.keys() - known.keys())),
        updated=tuple(sorted(reading.parsed.keys() & known.keys())),
        removed=tuple(sorted(removed)),
        unchanged=len(reading.kept),
        problems=reading.problems,
        encoded=encoded,
        rebuilt=rebuilt,
    )


@contextmanager
def writer_lock(wiki: Wiki, timeout_s: float) -> Iterator[None]:
    """The right to write the wiki's index. Raises IndexBusyError after `timeout_s`."""
    try:
        wiki.index_dir.mkdir(exist_ok=True)
        ignore = wiki.index_dir / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        with filelock.FileLock(wiki.index_dir / "writer.lock", timeout=timeout_s):
            yield
    except filelock.Timeout as error:
        raise IndexBusyError(
            "Another process is writing this wiki's index; try again when it is done."
        ) from error
    except OSError as error:
        raise WikiIndexError(f"The index folder cannot be written: {error.strerror}.") from error


def _reason_to_rebuild(manifest: Manifest, model: ModelChoice) -> str | None:
    meta = manifest.meta()
    if not meta:
        return None
    if meta["model"] != model.identity:
        return f"the model changed from {meta['model']} to {model.identity}"
    if meta["pipeline"] != str(PIPELINE_VERSION):
        return f"the pipeline changed from version {meta['pipeline']} to {PIPELINE_VERSION}"
    return None


def _read(wiki: Wiki, manifest: Manifest, known: Mapping[str, tuple[str, str]], everything: bool) -> _Reading:
    problems: list[PageError] = []
    rows: list[FileRow] = []
    vocabulary, vocabulary_hash = _vocabulary(wiki, problems)
    everything = everything or manifest.meta().get("vocabulary") != vocabulary_hash
    parsed: dict[str, Page] = {}
    kept: dict[str, str] = {}
    paths = list(wiki.page_files())
    twins = {stem for stem, count in Counter(path.stem for path in paths).items() if count > 1}
    for path in paths:
        page_id = path.stem
        row = FileRow(wiki.relative(path), 0, 0, "")
        try:
            stat = path.stat()  # before reading: an edit in between then shows as stale, never as fresh
            row = replace(row, size=stat.st_size, mtime_ns=stat.st_mtime_ns)
            source = read_source(wiki, path)
            row = replace(row, content_hash=source.content_hash)
            as_indexed = known.get(page_id) == (source.path, source.content_hash)
            if as_indexed and not everything and page_id not in twins:
                kept[page_id] = source.path
            else:
                page = _parse_new(source, vocabulary, kept, parsed)
                if as_indexed:
                    kept[page_id] = source.path
                else:
                    parsed[page.front.id] = page
        except FileNotFoundError:  # deleted since it was listed
            continue
        except PageError as problem:
            problems.append(problem)
            row = replace(row, problem_line=problem.line, problem=problem.reason)
        rows.append(row)
    return _Reading(parsed, frozenset(kept), tuple(rows), tuple(problems), vocabulary_hash)


def _vocabulary(wiki: Wiki, problems: list[PageError]) -> tuple[Vocabulary, str]:
    """The words and the hash of their file. A broken file is a problem, and no words are checked."""
    path = wiki.root / VOCABULARY_FILE
    try:
        return load_vocabulary(wiki), hash_of(path.read_text(encoding="utf-8-sig")) if path.exists() else ""
    except PageError as problem:
        problems.append(problem)
        return Vocabulary(None), "broken"


def _parse_new(
    source: SourceText, vocabulary: Vocabulary, kept: Mapping[str, str], parsed: Mapping[str, Page]
) -> Page:
    page = parse_page(source, vocabulary)
    owner = kept.get(page.front.id) or (parsed[page.front.id].path if page.front.id in parsed else None)
    if owner:
        raise PageError(source.path, 1, f"the id `{page.front.id}` is already that of {owner}; rename one")
    return page


def _chunk_and_encode(
    pages: Mapping[str, Page],
    manifest: Manifest,
    model: ModelChoice,
    everything: bool,
    progress: Progress | None,
) -> tuple[dict[str, list[ChunkRow]], int]:
    """Chunks of the pages with their vectors; only texts whose vector is not known yet are encoded."""
    if not pages:
        return {}, 0
    counter = model.embedder() if model.embeds else HashEmbedder()
    chunked = {page_id: chunk_page(page, counter.count_tokens) for page_id, page in pages.items()}
    vectors: dict[str, bytes] = {} if everything else manifest.vectors_by_hash()
    texts = {hash_of(chunk.embedded): chunk.embedded for chunk in chain.from_iterable(chunked.values())}
    missing = [key for key in texts if key not in vectors] if model.embeds else []
    if missing:
        encoder = model.embedder(len(missing))
        encoded = encoder.encode([texts[key] for key in missing], progress)
        vectors |= {key: row.astype(np.float32).tobytes() for key, row in zip(missing, encoded, strict=True)}
    rows = {
        page_id: [_row(pages[page_id], chunk, vectors) for chunk in chunks]
        for page_id, chunks in chunked.items()
    }
    return rows, len(missing)


def _row(page: Page, chunk: Chunk, vectors: Mapping[str, bytes]) -> ChunkRow:
    front = page.front
    names = [front.id, *front.aliases, *front.symptoms, *front.tags, *front.dtype, front.op or ""]
    names += [trigger.metric for trigger in front.triggers] + [knob.name for knob in front.knobs]
    names += getattr(front, "api_symbols", ())
    columns = (front.title, "\n".join(names), chunk.heading, chunk.text)
    title, named, heading, body = (" ".join(words(column)) for column in columns)
    key = hash_of(chunk.embedded)
    return ChunkRow(chunk.heading, chunk.text, key, (title, named, heading, body), vectors.get(key))


def _store(
    manifest: Manifest,
    model: ModelChoice,
    reading: _Reading,
    chunks: Mapping[str, list[ChunkRow]],
    removed: set[str],
    everything: bool,
) -> None:
    with manifest.transaction():
        revision = int(manifest.meta().get("revision", "0"))
        if everything:
            manifest.clear()
        for page_id in removed:
            manifest.remove_page(page_id)
        for page_id, page in reading.parsed.items():
            front = page.front.model_dump(mode="json", exclude_none=True)
            manifest.put_page(page_id, page.path, page.content_hash, front, chunks[page_id])
        manifest.set_files(reading.files)
        meta = {
            "model": model.identity,
            "model_stamp": model.stamp,
            "pipeline": str(PIPELINE_VERSION),
            "vocabulary": reading.vocabulary_hash,
            "revision": str(revision + bool(everything or removed or reading.parsed)),
        }
        if everything:
            meta["chroma_revision"] = "rebuild"  # Chroma still holds the other model's vectors
        manifest.set_meta(meta)


def _bring_chroma_in_step(wiki: Wiki, manifest: Manifest, changed: set[str]) -> None:
    """Give Chroma the changed pages if it had the revision before, else everything."""
    meta = manifest.meta()
    revision, chroma_revision = int(meta["revision"]), meta.get("chroma_revision")
    there = (wiki.index_dir / "chroma").is_dir()
    if there and chroma_revision == str(revision):
        return
    from kwiki_ingest.index.chroma import open_chroma

    follows = there and bool(changed) and chroma_revision == str(revision - 1)
    with open_chroma(wiki.index_dir, fresh=not follows) as chroma:
        chroma.replace(changed if follows else (), manifest.vectors(changed if follows else None))
    with manifest.transaction():
        manifest.set_meta({"chroma_revision": str(revision)})
