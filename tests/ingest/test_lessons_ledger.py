import subprocess
import sys
from pathlib import Path

import pytest
from kwiki_ingest.lessons.errors import LedgerError
from kwiki_ingest.lessons.ledger import FILE, Counts, counts, record
from kwiki_ingest.wiki import Wiki


def test_a_wiki_without_events_has_no_ledger_file(tmp_path: Path) -> None:
    assert counts(Wiki(tmp_path)) == {}
    assert not (tmp_path / FILE).exists()


def test_events_are_counted_per_page_and_run(tmp_path: Path) -> None:
    wiki = Wiki(tmp_path)
    record(wiki, "retrieved", ["a", "b"], "r1")
    record(wiki, "retrieved", ["a"], "r2")
    record(wiki, "helped", ["a"], "r2")
    assert counts(wiki) == {"a": Counts(retrieved=2, helped=1), "b": Counts(retrieved=1)}


def test_a_resumed_run_does_not_count_twice(tmp_path: Path) -> None:
    wiki = Wiki(tmp_path)
    for _ in range(2):
        record(wiki, "used", ["a", "a"], "r1")
    assert counts(wiki) == {"a": Counts(used=1)}


def test_an_unknown_event_is_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown event 'liked'"):
        record(Wiki(tmp_path), "liked", ["a"], "r1")  # type: ignore[arg-type]


def test_a_broken_ledger_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to look at" * 50)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(LedgerError, match="restore it from a backup"):
        record(Wiki(tmp_path), "used", ["a"], "r1")
    assert (tmp_path / FILE).read_bytes() == before


def test_no_event_of_concurrent_writers_is_lost(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kwiki_ingest.wiki import Wiki\n"
        "from kwiki_ingest.lessons.ledger import record\n"
        "for i in range(40): record(Wiki(Path(sys.argv[1])), 'used', ['page'], f'{sys.argv[2]}-{i}')\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert counts(Wiki(tmp_path)) == {"page": Counts(used=120)}
