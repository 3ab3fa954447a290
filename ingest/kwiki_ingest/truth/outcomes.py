"""What is known about snippets: one small SQLite file beside the index, a cache like the rest of it.

An outcome belongs to the code and its claim, whichever page they stand on, and to a version of the DSL. From
the outcomes `wiki verify` derives which pages need a recheck; searches and the site read that here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kwiki_ingest.errors import WikiIndexError
from kwiki_ingest.wiki import Wiki

FILE = "snippets.sqlite"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE outcomes (
    key TEXT NOT NULL, dsl TEXT NOT NULL, passed INTEGER NOT NULL, message TEXT NOT NULL,
    line INTEGER NOT NULL, duration_s REAL NOT NULL, PRIMARY KEY (key, dsl)
);
CREATE TABLE rechecks (page_id TEXT PRIMARY KEY, content_hash TEXT NOT NULL, reason TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended. `message` says why it failed; `line` counts from the fence's opening, which is 0."""

    passed: bool
    message: str
    line: int
    duration_s: float


@dataclass(frozen=True)
class Recheck:
    """Why a page needs another look, as long as its text is the one of `content_hash`."""

    content_hash: str
    reason: str


class Outcomes:
    """The open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection

    def of(self, dsl: str) -> dict[str, Outcome]:
        """Outcomes under one version of the DSL, by key."""
        rows = self._sql.execute(
            "SELECT key, passed, message, line, duration_s FROM outcomes WHERE dsl = ?", (dsl,)
        )
        return {key: Outcome(bool(passed), *rest) for key, passed, *rest in rows}

    def put(self, key: str, dsl: str, outcome: Outcome) -> None:
        values = (key, dsl, outcome.passed, outcome.message, outcome.line, outcome.duration_s)
        self._sql.execute("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?)", values)

    def versions_passed(self, key: str) -> list[str]:
        """The versions of the DSL under which it passed."""
        return [
            row[0] for row in self._sql.execute("SELECT dsl FROM outcomes WHERE key = ? AND passed", (key,))
        ]

    def set_rechecks(self, checked: Iterable[str], rechecks: Mapping[str, Recheck]) -> None:
        """Replace what is known of the pages `checked`."""
        self._sql.executemany("DELETE FROM rechecks WHERE page_id = ?", [(page_id,) for page_id in checked])
        rows = [(page_id, found.content_hash, found.reason) for page_id, found in rechecks.items()]
        self._sql.executemany("INSERT OR REPLACE INTO rechecks VALUES (?, ?, ?)", rows)


@contextmanager
def open_outcomes(wiki: Wiki) -> Iterator[Outcomes]:
    """The file, made anew where missing or unusable: it holds nothing that cannot be found out again."""
    try:
        wiki.index_dir.mkdir(exist_ok=True)
        ignore = wiki.index_dir / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        connection = _opened(wiki) or _remade(wiki)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise WikiIndexError(f"The index folder cannot be written ({reason}); make it writable.") from error
    try:
        yield Outcomes(connection)
    finally:
        connection.close()


def rechecks(wiki: Wiki) -> dict[str, Recheck]:
    """Pages that failed when `wiki verify` last saw them, by id. None where it never ran."""
    path = wiki.index_dir / FILE
    if not path.exists():
        return {}
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=10)
        try:
            rows = connection.execute("SELECT page_id, content_hash, reason FROM rechecks").fetchall()
        finally:
            connection.close()
    except sqlite3.Error:  # a damaged cache knows nothing; the next `wiki verify` makes it anew
        return {}
    return {page_id: Recheck(content_hash, reason) for page_id, content_hash, reason in rows}


def _opened(wiki: Wiki) -> sqlite3.Connection | None:
    connection = sqlite3.connect(wiki.index_dir / FILE, timeout=10, isolation_level=None)
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version == 0:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        if version in (0, SCHEMA_VERSION):
            return connection
    except sqlite3.OperationalError:  # locked or unreadable says nothing about the content
        connection.close()
        raise
    except sqlite3.DatabaseError:
        pass
    connection.close()
    return None


def _remade(wiki: Wiki) -> sqlite3.Connection:
    for leftover in wiki.index_dir.glob(FILE + "*"):
        leftover.unlink()
    connection = _opened(wiki)
    assert connection is not None
    return connection
