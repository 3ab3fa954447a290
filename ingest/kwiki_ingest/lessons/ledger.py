"""How often each page was retrieved and used, and whether it helped or hurt.

The counters stand in one small SQLite file beside the pages, because they change with every run
and the Markdown must not. The ledger is no cache: it cannot be rebuilt from the pages.
One event of one page in one run counts once, so a resumed run may record again what it recorded.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from kwiki_ingest.lessons.errors import LedgerError
from kwiki_ingest.wiki import Wiki

Event = Literal["retrieved", "used", "helped", "hurt"]

FILE = ".ledger.sqlite"
_BUSY_S = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    page_id TEXT NOT NULL,
    event TEXT NOT NULL,
    run TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (page_id, event, run)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Counts:
    """In how many runs a page was retrieved, used, helped and hurt."""

    retrieved: int = 0
    used: int = 0
    helped: int = 0
    hurt: int = 0


def record(wiki: Wiki, event: Event, page_ids: Iterable[str], run: str) -> None:
    """Note that `event` happened to each page in `run`. Safe from several processes at once.

    Raises ValueError for an unknown event and LedgerError when the file cannot be written.
    """
    if event not in get_args(Event):
        raise ValueError(f"unknown event {event!r}; known: {', '.join(get_args(Event))}")
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    rows = [(page_id, event, run, at) for page_id in page_ids]
    with _open(wiki) as database, database:
        database.executemany("INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?)", rows)


def counts(wiki: Wiki) -> dict[str, Counts]:
    """The counters of every page that has any, by page id. Raises LedgerError."""
    if not (wiki.root / FILE).exists():
        return {}
    with _open(wiki) as database:
        rows = database.execute("SELECT page_id, event, count(*) FROM events GROUP BY page_id, event")
        found: dict[str, dict[str, int]] = {}
        for page_id, event, number in rows:
            found.setdefault(page_id, {})[event] = number
    return {page_id: Counts(**events) for page_id, events in found.items()}


@contextmanager
def _open(wiki: Wiki) -> Iterator[sqlite3.Connection]:
    path = wiki.root / FILE
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as database:
            database.execute(_SCHEMA)
            yield database
    except sqlite3.Error as error:
        raise LedgerError(
            f"The ledger {path} cannot be used ({error}); restore it from a backup, "
            "or move it away to start counting anew."
        ) from error
