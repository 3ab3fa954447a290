"""The manifest: one SQLite file that knows every page, chunk, index word and exact vector.

It alone can answer a search; Chroma is a second copy of the vectors. Each sync is one transaction, so a
reader sees the index before or after it and never in between.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kwiki_ingest.errors import IndexMissingError, WikiIndexError

SCHEMA_VERSION = 2
FILE = "manifest.sqlite"

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE files (path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL);
CREATE TABLE pages (id TEXT PRIMARY KEY, path TEXT NOT NULL, content_hash TEXT NOT NULL, front TEXT NOT NULL);
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, page_id TEXT NOT NULL REFERENCES pages (id),
    heading TEXT NOT NULL, text TEXT NOT NULL, embedded_hash TEXT NOT NULL,
    vector BLOB  -- float32, unit length; NULL in a keyword-only index
);
CREATE INDEX chunks_of_page ON chunks (page_id);
CREATE INDEX chunks_by_hash ON chunks (embedded_hash);
CREATE VIRTUAL TABLE keyword USING fts5 (
    title, names, heading, body, tokenize = "porter unicode61 tokenchars '_'"
);
"""


@dataclass(frozen=True)
class FileRow:
    """A page file as last seen, whether its page was good or not."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class ChunkRow:
    """A chunk ready to be stored: shown text, index words by column, float32 bytes or None."""

    heading: str
    text: str
    embedded_hash: str
    words: tuple[str, str, str, str]
    vector: bytes | None


class Manifest:
    """An open manifest. Reads are plain; writes happen inside `transaction`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.sql = connection

    def meta(self) -> dict[str, str]:
        return dict(self.sql.execute("SELECT key, value FROM meta").fetchall())

    def set_meta(self, values: Mapping[str, str]) -> None:
        self.sql.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def files(self) -> set[FileRow]:
        return {FileRow(*row) for row in self.sql.execute("SELECT path, size, mtime_ns FROM files")}

    def set_files(self, rows: Iterable[FileRow]) -> None:
        self.sql.execute("DELETE FROM files")
        values = [(row.path, row.size, row.mtime_ns) for row in rows]
        self.sql.executemany("INSERT INTO files VALUES (?, ?, ?)", values)

    def pages(self) -> dict[str, tuple[str, str]]:
        """Path and content hash by page id."""
        rows = self.sql.execute("SELECT id, path, content_hash FROM pages")
        return {page_id: (path, content_hash) for page_id, path, content_hash in rows}

    def remove_page(self, page_id: str) -> None:
        ids = [(row[0],) for row in self.sql.execute("SELECT id FROM chunks WHERE page_id = ?", (page_id,))]
        self.sql.executemany("DELETE FROM keyword WHERE rowid = ?", ids)
        self.sql.execute("DELETE FROM chunks WHERE page_id = ?", (page_id,))
        self.sql.execute("DELETE FROM pages WHERE id = ?", (page_id,))

    def put_page(
        self,
        page_id: str,
        path: str,
        content_hash: str,
        front: Mapping[str, object],
        chunks: Sequence[ChunkRow],
    ) -> None:
        """Store a page and its chunks in place of any earlier version."""
        self.remove_page(page_id)
        text = json.dumps(front, ensure_ascii=False)
        self.sql.execute("INSERT INTO pages VALUES (?, ?, ?, ?)", (page_id, path, content_hash, text))
        for ordinal, chunk in enumerate(chunks):
            cursor = self.sql.execute(
                "INSERT INTO chunks (key, page_id, heading, text, embedded_hash, vector)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    f"{page_id}#{ordinal}",
                    page_id,
                    chunk.heading,
                    chunk.text,
                    chunk.embedded_hash,
                    chunk.vector,
                ),
            )
            self.sql.execute(
                "INSERT INTO keyword (rowid, title, names, heading, body) VALUES (?, ?, ?, ?, ?)",
                (cursor.lastrowid, *chunk.words),
            )

    def clear(self) -> None:
        """Forget every page, for a rebuild inside the running transaction."""
        for table in ("keyword", "chunks", "pages", "files", "meta"):
            self.sql.execute(f"DELETE FROM {table}")

    def vectors_by_hash(self) -> dict[str, bytes]:
        """Known vectors by the hash of the text that they embed."""
        rows = self.sql.execute("SELECT embedded_hash, vector FROM chunks WHERE vector IS NOT NULL")
        return dict(rows.fetchall())

    def vectors(self, page_ids: Iterable[str] | None = None) -> list[tuple[str, str, bytes]]:
        """Chunk key, page id and float32 bytes of every embedded chunk (of the given pages), by key."""
        rows = self.sql.execute(
            "SELECT key, page_id, vector FROM chunks WHERE vector IS NOT NULL ORDER BY key"
        )
        wanted = None if page_ids is None else set(page_ids)
        return [row for row in rows if wanted is None or row[1] in wanted]

    def vector_count(self) -> int:
        row = self.sql.execute("SELECT count(*) FROM chunks WHERE vector IS NOT NULL").fetchone()
        return int(row[0])

    def vectors_of_chunks(self, keys: Sequence[str]) -> list[tuple[str, str, bytes]]:
        """The same of the given chunks; unknown keys are left out."""
        marks = ",".join("?" * len(keys))
        return self.sql.execute(
            f"SELECT key, page_id, vector FROM chunks WHERE key IN ({marks}) AND vector IS NOT NULL", keys
        ).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, also across a crash."""
        self.sql.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self.sql.in_transaction:  # on a full disk SQLite has rolled back already
                self.sql.execute("ROLLBACK")
            raise
        self.sql.execute("COMMIT")


@contextmanager
def open_for_reading(index_dir: Path) -> Iterator[Manifest]:
    """The manifest, for questions. Raises IndexMissingError, or WikiIndexError if it is unusable."""
    path = index_dir / FILE
    if not path.exists():
        raise IndexMissingError("The wiki has no index; run `wiki sync`.")
    # Not mode=ro: after a writer's crash, the next reader must be able to roll its journal back.
    with _translated(), _connected(f"{path.as_uri()}?mode=rw") as connection:
        if _version(connection) != SCHEMA_VERSION:
            raise WikiIndexError("The index was made by another version of Kernel-Wiki; run `wiki sync`.")
        connection.execute("BEGIN")  # one state of the index for all questions asked of it
        yield Manifest(connection)
        connection.execute("COMMIT")


@contextmanager
def open_for_writing(index_dir: Path) -> Iterator[Manifest]:
    """The manifest, made anew where missing, damaged or of another schema. The caller holds the lock."""
    path = index_dir / FILE
    with _translated():
        if path.exists() and not _is_sound(path):
            for leftover in index_dir.glob(FILE + "*"):
                leftover.unlink()
        with _connected(path.as_uri()) as connection:
            if _version(connection) == 0:
                connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            yield Manifest(connection)


def _is_sound(path: Path) -> bool:
    try:
        with _connected(f"{path.as_uri()}?mode=rw") as connection:
            healthy = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            return healthy and _version(connection) in (0, SCHEMA_VERSION)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked or unreadable says nothing about the content
            raise
        return False


@contextmanager
def _connected(uri: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(uri, uri=True, timeout=10, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        if "full" in reason or "disk I/O" in reason:
            raise WikiIndexError(
                f"The index could not be written ({reason}); make room on the disk and run `wiki sync`."
            ) from error
        if "locked" in reason:
            raise WikiIndexError("Another process is using the index; try again when it is done.") from error
        if "readonly" in reason:
            raise WikiIndexError(
                "The index folder is read-only; make it writable and run `wiki sync`."
            ) from error
        raise WikiIndexError(f"The index is damaged ({reason}); run `wiki sync` to rebuild it.") from error
