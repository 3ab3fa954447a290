"""The index follows the files, whatever happens to them or to it."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest
from kwiki_ingest.errors import IndexBusyError, IndexMissingError, WikiIndexError
from kwiki_ingest.index.chroma import open_chroma
from kwiki_ingest.index.freshness import stale_reason
from kwiki_ingest.index.manifest import FILE, open_for_reading
from kwiki_ingest.index.sync import PIPELINE_VERSION, sync
from kwiki_ingest.search.retrieve import search
from kwiki_ingest.wiki import CHROMA_FOLDER, Wiki

from tests.ingest.sample_pages import WritePage


def found(wiki: Wiki, query: str) -> list[str]:
    return [hit.page_id for hit in search(wiki, query, legs=("keyword",))]


def stored(wiki: Wiki) -> list[tuple[object, ...]]:
    """Everything that can change an answer."""
    with open_for_reading(wiki.index_dir) as manifest:
        chunks = manifest.sql.execute("SELECT key, heading, text, vector FROM chunks ORDER BY key").fetchall()
        pages = manifest.sql.execute("SELECT id, path, front FROM pages ORDER BY id").fetchall()
    return [*pages, *chunks]


def chroma_keys(wiki: Wiki) -> set[str]:
    with open_chroma(wiki.index_dir) as chroma:
        return set(chroma.rows())


def manifest_keys(wiki: Wiki) -> set[str]:
    with open_for_reading(wiki.index_dir) as manifest:
        return {key for key, _, _ in manifest.vectors()}


def assert_as_rebuilt(wiki: Wiki) -> None:
    """The index equals the one made from nothing, and Chroma holds the same chunks."""
    before = stored(wiki)
    assert chroma_keys(wiki) == manifest_keys(wiki)
    shutil.rmtree(wiki.index_dir)
    sync(wiki)
    assert stored(wiki) == before


def run_wiki(wiki: Wiki, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kwiki_ingest.cli", *arguments, "--wiki", str(wiki.root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_unchanged_wiki_is_left_alone(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    first = sync(wiki)
    second = sync(wiki)
    assert (first.added, first.encoded) == (("one",), 1)
    assert (second.added, second.updated, second.unchanged, second.encoded) == ((), (), 1, 0)


def test_an_edited_page_is_served_as_edited(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", "## A\n\nzebra\n\n## B\n\nstays\n")
    sync(wiki)
    write_page("one", "## A\n\nlion\n\n## B\n\nstays\n")
    report = sync(wiki)
    assert (report.updated, report.encoded) == (("one",), 1)
    assert found(wiki, "zebra") == []
    assert found(wiki, "lion") == ["one"]
    assert_as_rebuilt(wiki)


def test_a_front_matter_edit_counts_as_an_edit(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    sync(wiki)
    write_page("one", aliases="[向量化]", status="disputed")
    assert sync(wiki).updated == ("one",)
    assert [hit.status for hit in search(wiki, "向量化")] == ["disputed"]


def test_deleted_pages_vanish_also_the_last_one(wiki: Wiki, write_page: WritePage) -> None:
    paths = [write_page("one", "zebra"), write_page("two", "zebra")]
    sync(wiki)
    for path, left in zip(paths, (["two"], []), strict=True):
        path.unlink()
        sync(wiki)
        assert found(wiki, "zebra") == left
        assert chroma_keys(wiki) == manifest_keys(wiki) == {f"{name}#0" for name in left}


def test_a_renamed_page_leaves_no_second_one(wiki: Wiki, write_page: WritePage) -> None:
    write_page("old-name", "zebra").unlink()
    write_page("old-name", "zebra")
    sync(wiki)
    (wiki.root / "techniques" / "old-name.md").unlink()
    write_page("new-name", "zebra")
    report = sync(wiki)
    assert (report.added, report.removed) == (("new-name",), ("old-name",))
    assert found(wiki, "zebra") == ["new-name"]


def test_a_page_moved_to_another_folder_keeps_its_vectors(wiki: Wiki, write_page: WritePage) -> None:
    old = write_page("one", "zebra")
    sync(wiki)
    old.unlink()
    write_page("one", "zebra", folder="techniques/deep")
    report = sync(wiki)
    assert (report.updated, report.encoded) == (("one",), 0)
    assert search(wiki, "zebra")[0].path == "techniques/deep/one.md"


def test_of_two_pages_with_one_id_the_first_path_wins(wiki: Wiki, write_page: WritePage) -> None:
    late = write_page("one", "late", folder="techniques/z")
    sync(wiki)
    early = write_page("one", "early", folder="techniques/a")
    report = sync(wiki)
    assert [str(problem) for problem in report.problems] == [
        "techniques/z/one.md:1: the id `one` already belongs to techniques/a/one.md; rename one"
    ]
    assert_as_rebuilt(wiki)
    early.unlink()
    assert sync(wiki).problems == ()
    assert search(wiki, "late")[0].path == wiki.relative(late)


def test_broken_pages_are_reported_and_the_rest_is_indexed(wiki: Wiki, write_page: WritePage) -> None:
    write_page("good", "zebra")
    write_page("twice", "zebra", title="x\ntitle: y")
    write_page("wiped").write_text("no front matter\n")
    for _ in range(2):  # a problem is reported until it is mended, changed or not
        report = sync(wiki)
        assert [str(problem) for problem in report.problems] == [
            "techniques/twice.md:4: the key `title` stands twice",
            "techniques/wiped.md:1: the page must open with a front matter block between two lines of `---`",
        ]
        assert found(wiki, "zebra") == ["good"]
    assert stale_reason(wiki) is None
    write_page("twice", "zebra")
    sync(wiki)
    assert sorted(found(wiki, "zebra")) == ["good", "twice"]


def test_a_page_that_breaks_is_no_longer_served(wiki: Wiki, write_page: WritePage) -> None:
    path = write_page("one", "zebra")
    sync(wiki)
    path.write_text(path.read_text().replace("type: technique", "type: nonsense"))
    report = sync(wiki)
    assert report.removed == ("one",)
    assert found(wiki, "zebra") == []
    assert "zebra" in path.read_text()


def test_a_changed_vocabulary_is_applied_to_unchanged_pages(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", tags="[layout]")
    assert sync(wiki).problems == ()
    (wiki.root / "vocabulary.yaml").write_text("tags: {layouts: On layouts.}\n")
    assert [problem.line for problem in sync(wiki).problems] == [10]
    (wiki.root / "vocabulary.yaml").write_text("tags: {layout: On layouts.}\n")
    assert sync(wiki).problems == ()
    (wiki.root / "vocabulary.yaml").write_text("tags: [layout]\n")
    assert [problem.path for problem in sync(wiki).problems] == ["vocabulary.yaml"]
    assert found(wiki, "about") == ["one"]


def test_files_outside_the_page_folders_are_no_pages(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    (wiki.root / "index.md").write_text("zebra")
    (wiki.root / "evidence").mkdir()
    (wiki.root / "evidence" / "run.md").write_text("zebra")
    (wiki.root / "techniques" / ".draft.md").write_text("zebra")
    report = sync(wiki)
    assert (report.added, report.problems) == (("one",), ())


def test_staleness_is_seen_without_reading_the_files(wiki: Wiki, write_page: WritePage) -> None:
    path = write_page("one")
    with pytest.raises(IndexMissingError, match="run `wiki sync`"):
        stale_reason(wiki)
    sync(wiki)
    assert stale_reason(wiki) is None
    write_page("one", "longer text than before")
    assert stale_reason(wiki) == "The index is behind the files (1 changed, 0 gone); run `wiki sync`."
    path.unlink()
    assert stale_reason(wiki) == "The index is behind the files (0 changed, 1 gone); run `wiki sync`."


def test_another_model_rebuilds_the_index_and_says_so(
    wiki: Wiki, write_page: WritePage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_page("one", "zebra")
    sync(wiki)
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "none")
    assert sync(wiki).rebuilt == "the model changed from hash-256 to none"
    assert not (wiki.index_dir / CHROMA_FOLDER).exists()
    assert found(wiki, "zebra") == ["one"]
    monkeypatch.delenv("KERNEL_WIKI_MODEL")
    hits = search(wiki, "zebra")
    assert [hit.ranks for hit in hits] == [{"keyword": 1}]
    report = sync(wiki)
    assert report.rebuilt
    assert report.encoded == 1
    monkeypatch.setenv("KERNEL_WIKI_MODEL", "hash")
    assert [hit.ranks for hit in search(wiki, "zebra")] == [{"keyword": 1}]
    assert "made with another model (all-MiniLM-L6-v2@" in caplog.text
    sync(wiki)
    assert_as_rebuilt(wiki)


def test_another_pipeline_version_rebuilds_the_index(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    sync(wiki)
    with open_for_reading(wiki.index_dir) as manifest:
        manifest.set_meta({"pipeline": "0"})
    report = sync(wiki)
    assert report.rebuilt == f"the pipeline changed from version 0 to {PIPELINE_VERSION}"
    assert report.encoded == 1


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_damaged_manifest_is_rebuilt(wiki: Wiki, write_page: WritePage, content: bytes) -> None:
    write_page("one", "zebra")
    sync(wiki)
    (wiki.index_dir / FILE).write_bytes(content)
    with pytest.raises(WikiIndexError, match="run `wiki sync`"):
        search(wiki, "zebra")
    sync(wiki)
    assert found(wiki, "zebra") == ["one"]
    assert_as_rebuilt(wiki)


@pytest.mark.parametrize("damage", ["bytes", "empty file", "no folder", "rows lost"])
def test_a_damaged_chroma_store_is_answered_around_and_rebuilt_unread(
    wiki: Wiki, write_page: WritePage, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    write_page("one", "zebra")
    write_page("two", "lion")
    sync(wiki)
    folder = wiki.index_dir / CHROMA_FOLDER
    if damage == "bytes":
        (folder / "chroma.sqlite3").write_bytes(b"not a database" * 100)
    elif damage == "empty file":
        (folder / "chroma.sqlite3").write_bytes(b"")
    elif damage == "no folder":
        shutil.rmtree(folder)
    else:
        with open_chroma(wiki.index_dir) as chroma:
            chroma.replace(["one"], [])
    expected = search(wiki, "zebra")
    assert search(wiki, "zebra", store="chroma") == expected
    assert "Exact vectors are searched instead" in caplog.text
    sync(wiki)
    caplog.clear()
    assert search(wiki, "zebra", store="chroma") == expected
    assert not caplog.text
    assert chroma_keys(wiki) == {"one#0", "two#0"}


def test_a_chroma_store_left_behind_is_brought_in_step(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", "zebra")
    sync(wiki)
    with open_for_reading(wiki.index_dir) as manifest:  # as after a stop between the two stores
        manifest.set_meta({"chroma_revision": "0"})
    with open_chroma(wiki.index_dir) as chroma:
        chroma.replace(["one"], [])
    assert [hit.page_id for hit in search(wiki, "zebra", store="chroma")] == ["one"]
    sync(wiki)
    assert chroma_keys(wiki) == {"one#0"}


def test_where_chroma_cannot_be_written_the_index_still_answers(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", "zebra")
    wiki.index_dir.mkdir()
    (wiki.index_dir / CHROMA_FOLDER).write_text("a file where the folder belongs")
    with pytest.raises(WikiIndexError, match="Chroma cannot use its folder"):
        sync(wiki)
    assert [hit.page_id for hit in search(wiki, "zebra", store="chroma")] == ["one"]
    (wiki.index_dir / CHROMA_FOLDER).unlink()
    sync(wiki)
    assert chroma_keys(wiki) == {"one#0"}


def test_a_second_writer_is_told_so(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    wiki.index_dir.mkdir()
    with (
        filelock.FileLock(wiki.index_dir / "writer.lock"),
        pytest.raises(IndexBusyError, match="Another process is writing this wiki's index"),
    ):
        sync(wiki, lock_timeout_s=0.05)
    assert sync(wiki).added == ("one",)


def test_writers_at_the_same_time_take_turns(wiki: Wiki, write_page: WritePage) -> None:
    for number in range(20):
        write_page(f"page-{number}", f"zebra {number}")
    writers = [run_wiki(wiki, "sync") for _ in range(3)]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0 or "Another process is writing" in err
    assert 0 in [writer.returncode for writer in writers]
    assert_as_rebuilt(wiki)


def test_a_search_during_a_sync_sees_one_state_of_the_index(wiki: Wiki, write_page: WritePage) -> None:
    for number in range(30):
        write_page(f"page-{number}", "zebra")
    sync(wiki)
    for path in sorted(wiki.page_files())[:15]:
        path.unlink()
    writer = run_wiki(wiki, "sync")
    while True:
        done = writer.poll() is not None
        hits = search(wiki, "zebra", k=100, store="chroma")
        assert len(hits) in (15, 30)
        if done:
            break
    assert writer.communicate() == (
        "15 pages: 0 added, 0 updated, 15 removed, 15 unchanged; 0 chunks encoded.\n",
        "",
    )
    assert len(hits) == 15


def test_a_kill_at_any_moment_leaves_an_index_that_answers(wiki: Wiki, write_page: WritePage) -> None:
    write_page("standing", "zebra")
    sync(wiki)
    random_delay = random.Random(7)
    for round_number in range(6):
        for number in range(40):
            write_page(f"page-{number}", f"round{round_number} text {number}")
        writer = run_wiki(wiki, "sync")
        time.sleep(random_delay.uniform(0.2, 1.6))
        writer.kill()
        writer.communicate(timeout=60)
        assert found(wiki, "zebra") == ["standing"]
        hits = search(wiki, f"round{round_number}", legs=("keyword",), k=100)
        assert len(hits) in (0, 40)  # before or after the transaction, never in between
    sync(wiki)
    assert_as_rebuilt(wiki)


def test_ctrl_c_stops_a_sync_with_one_sentence(wiki: Wiki, write_page: WritePage) -> None:
    for number in range(400):
        write_page(f"page-{number}")
    writer = run_wiki(wiki, "sync")
    while not (wiki.index_dir / FILE).exists():
        assert writer.poll() is None
        time.sleep(0.01)
    writer.send_signal(signal.SIGINT)
    out, err = writer.communicate(timeout=120)
    assert (writer.returncode, out) == (1, "")
    assert err == "Stopped; pages and index are whole, and the same command can be run again.\n"
    assert len(sync(wiki).added) == 400


def test_a_full_disk_loses_nothing_that_was_indexed(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one", "zebra")
    sync(wiki)
    before = stored(wiki)
    for number in range(60):
        write_page(f"page-{number}", f"text {number} " * 200)

    def limit_files() -> None:  # every write beyond this size fails, as on a full disk
        size = (wiki.index_dir / FILE).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [sys.executable, "-m", "kwiki_ingest.cli", "sync", "--wiki", str(wiki.root)]
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=limit_files, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("The index could not be written")
    assert done.stderr.count("\n") == 1
    assert stored(wiki) == before
    sync(wiki)
    assert_as_rebuilt(wiki)


def test_an_index_folder_that_cannot_be_made_is_one_sentence(wiki: Wiki, write_page: WritePage) -> None:
    write_page("one")
    wiki.index_dir.write_text("a file where the folder belongs")
    with pytest.raises(WikiIndexError, match="cannot be written"):
        sync(wiki)


def test_the_index_does_not_grow_by_syncing(wiki: Wiki, write_page: WritePage) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in Path(wiki.index_dir).rglob("*") if path.is_file())

    for number in range(10):
        write_page(f"page-{number}", f"text {number}")
    sync(wiki)
    first = size()
    for round_number in range(5):
        for number in range(10):
            write_page(f"page-{number}", f"text {number} {round_number}")
        sync(wiki)
    assert size() < 3 * first
