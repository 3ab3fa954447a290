"""Bring the index in step with the Markdown files: one writer, only what changed, repairable at any point.

Order matters for crashes. Encoding comes first and touches nothing; then one SQLite transaction makes the
manifest new; then Chroma follows. A stop before the transaction leaves the old index, a stop after it
leaves Chroma behind, which the recorded revisions show and the next sync repairs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import filelock
import numpy as np

from kwiki_ingest.chunk import Chunk, chunk_page
from kwiki_ingest.errors import IndexBusyError, PageError, WikiIndexError
from kwiki_ingest.index.embedder import HashEmbedder, Progress
from kwiki_ingest.index.manifest import ChunkRow, Manifest, open_for_writing
from kwiki_ingest.index.model import ModelChoice, choose_model
from kwiki_ingest.index.survey import Survey, survey
from kwiki_ingest.load import Page, hash_of
from kwiki_ingest.search.keyword import words
from kwiki_ingest.wiki import CHROMA_FAILED, CHROMA_FOLDER, Wiki

PIPELINE_VERSION = 2
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


def sync(wiki: Wiki, *, progress: Progress | None = None, lock_timeout_s: float = 10.0) -> SyncReport:
    """Index every page of the wiki; pages that break a rule are reported and left out.

    `progress` hears of chunks encoded. Raises IndexBusyError when another process writes for longer than
    `lock_timeout_s`, WikiIndexError when the index cannot be written (what was indexed before stays).
    """
    with writer_lock(wiki, lock_timeout_s), open_for_writing(wiki.index_dir) as manifest:
        meta = manifest.meta()
        model = choose_model(meta)
        rebuilt = _reason_to_rebuild(meta, model)
        indexed = {} if rebuilt else manifest.pages()
        found = survey(wiki, indexed, meta.get("vocabulary"))
        known = {} if rebuilt else manifest.vectors_by_hash()
        chunks, encoded = _chunk_and_encode(found.changed, model, known, progress)
        removed = indexed.keys() - found.kept.keys() - found.changed.keys()
        _store(manifest, model, found, chunks, removed, rebuilt is not None)
        _bring_chroma_in_step(wiki, manifest, model, removed | found.changed.keys())
    return SyncReport(
        added=tuple(sorted(found.changed.keys() - indexed.keys())),
        updated=tuple(sorted(found.changed.keys() & indexed.keys())),
        removed=tuple(sorted(removed)),
        unchanged=len(found.kept),
        problems=tuple(found.problems),
        encoded=encoded,
        rebuilt=rebuilt,
    )


@contextmanager
def writer_lock(wiki: Wiki, timeout_s: float) -> Iterator[None]:
    """The right to write the wiki's index. Raises IndexBusyError after `timeout_s`."""
    lock = filelock.FileLock(wiki.index_dir / "writer.lock", timeout=timeout_s)
    try:
        wiki.index_dir.mkdir(exist_ok=True)
        ignore = wiki.index_dir / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        lock.acquire()
    except filelock.Timeout as error:
        raise IndexBusyError(
            "Another process is writing this wiki's index; try again when it is done."
        ) from error
    except OSError as error:
        raise WikiIndexError(f"The index folder cannot be written: {error.strerror}.") from error
    try:
        yield
    finally:
        lock.release()


def _reason_to_rebuild(meta: Mapping[str, str], model: ModelChoice) -> str | None:
    if not meta:
        return None
    if meta["model"] != model.identity:
        return f"the model changed from {meta['model']} to {model.identity}"
    if meta["pipeline"] != str(PIPELINE_VERSION):
        return f"the pipeline changed from version {meta['pipeline']} to {PIPELINE_VERSION}"
    return None


def _chunk_and_encode(
    pages: Mapping[str, Page], model: ModelChoice, known: Mapping[str, bytes], progress: Progress | None
) -> tuple[dict[str, list[ChunkRow]], int]:
    """Chunks of the pages with their vectors; texts whose vector is `known` by hash are not encoded."""
    if not pages:
        return {}, 0
    counter = model.embedder() if model.embeds else HashEmbedder()
    chunked = {page_id: chunk_page(page, counter.count_tokens) for page_id, page in pages.items()}
    vectors = dict(known)
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
    found: Survey,
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
        for page_id, page in found.changed.items():
            front = page.front.model_dump(mode="json", exclude_none=True)
            manifest.put_page(page_id, page.path, page.content_hash, front, chunks[page_id])
        manifest.set_files(found.files)
        meta = {
            "model": model.identity,
            "model_stamp": model.stamp,
            "pipeline": str(PIPELINE_VERSION),
            "vocabulary": found.vocabulary_hash,
            "revision": str(revision + bool(everything or removed or found.changed)),
        }
        if everything:
            meta["chroma_revision"] = "rebuild"  # Chroma still holds the other model's vectors
        manifest.set_meta(meta)


def _bring_chroma_in_step(wiki: Wiki, manifest: Manifest, model: ModelChoice, changed: set[str]) -> None:
    """Give Chroma the changed pages if it had the revision before, else everything."""
    folder = wiki.index_dir / CHROMA_FOLDER
    if not model.embeds:
        shutil.rmtree(folder, ignore_errors=True)
        return
    meta = manifest.meta()
    revision, chroma_revision = int(meta["revision"]), meta.get("chroma_revision")
    failed = wiki.index_dir / CHROMA_FAILED
    there = folder.is_dir() and not failed.exists()
    if there and chroma_revision == str(revision):
        return
    follows = there and bool(changed) and chroma_revision == str(revision - 1)
    try:
        _write_chroma(wiki, manifest, changed if follows else None)
    except WikiIndexError:  # damaged, or written by a Chroma that this one cannot read
        if not follows:
            raise
        _write_chroma(wiki, manifest, None)
    with manifest.transaction():
        manifest.set_meta({"chroma_revision": str(revision)})
    failed.unlink(missing_ok=True)


def _write_chroma(wiki: Wiki, manifest: Manifest, changed: set[str] | None) -> None:
    """Replace the changed pages' vectors; None throws the store away and writes all of them."""
    from kwiki_ingest.index.chroma import open_chroma  # 1.7 s, so only when something changed

    with open_chroma(wiki.index_dir, fresh=changed is None) as chroma:
        chroma.replace(changed or (), manifest.vectors(changed))
        chroma.check_count(manifest.vector_count())
