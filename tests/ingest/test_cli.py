"""The `wiki` command: what it prints, where, its exit codes, and what it takes to start."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from kwiki_ingest.cli import main
from kwiki_ingest.index.sync import sync
from kwiki_ingest.load import load_page
from kwiki_ingest.vocabulary import load_vocabulary
from kwiki_ingest.wiki import Wiki, open_wiki

from tests.ingest.sample_pages import WritePage

HEAVY = ("chromadb", "langgraph", "sentence_transformers", "torch", "transformers")
Capture = pytest.CaptureFixture[str]


def run(wiki: Wiki, capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    code = main([arguments[0], "--wiki", str(wiki.root), *arguments[1:]])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules that a command leaves imported in a fresh interpreter."""
    script = (
        "import sys\nfrom kwiki_ingest.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.split())


def cpu_s(*command: str) -> float:
    """The least processor time of three runs: a loaded machine slows the clock, hardly this."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, timeout=120, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return min(once() for _ in range(3))


def test_sync_counts_pages_and_search_shows_cards(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("one", "## Cause\n\nzebra\n")
    code, out, err = run(wiki, capsys, "sync")
    assert (code, err) == (0, "")
    assert out == "1 pages: 1 added, 0 updated, 0 removed, 0 unchanged; 1 chunks encoded.\n"
    code, out, err = run(wiki, capsys, "search", "a", "zebra")
    assert (code, err) == (0, "")
    assert out.startswith(
        "one: About one\n  techniques/one.md > Cause\n  technique, any, confirmed, verified;"
    )


def test_an_empty_question_is_wrong_usage(wiki: Wiki, capsys: Capture) -> None:
    assert run(wiki, capsys, "search", " ", "")[::2] == (
        2, "The question is empty; give words, an error message, or a name of the API.\n"
    )  # fmt: skip


def test_json_results_are_whole(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("one", "zebra", knobs="[{name: stages, op: '>=', value: 3}]", aliases="[向量]")
    assert json.loads(run(wiki, capsys, "sync", "--json")[1])["added"] == ["one"]
    out = run(wiki, capsys, "search", "zebra", "--json")[1]
    (hit,) = json.loads(out)
    assert (hit["page_id"], hit["ranks"]) == ("one", {"keyword": 1, "dense": 1})
    assert hit["knobs"] == [{"name": "stages", "op": ">=", "value": 3}]
    shown = json.loads(run(wiki, capsys, "show", "one", "--json")[1])
    assert (shown["front"]["aliases"], shown["body"]) == (["向量"], "zebra\n")


def test_sync_names_broken_pages_and_fails(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("good")
    write_page("bad", title="a: b")
    code, out, err = run(wiki, capsys, "sync")
    assert code == 1
    assert out.startswith("1 pages: 1 added")
    assert err == (
        "techniques/bad.md:3: YAML: quote a value that contains a colon and a space\n"
        "1 files have problems and are not indexed.\n"
    )


def test_a_stale_index_answers_and_says_so(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("one", "zebra")
    sync(wiki)
    write_page("two", "zebra")
    code, out, err = run(wiki, capsys, "search", "zebra")
    assert (code, err) == (0, "The index is behind the files (1 changed, 0 gone); run `wiki sync`.\n")
    assert out.startswith("one:")


def test_a_deleted_index_fails_with_the_next_step(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("one", "zebra")
    assert run(wiki, capsys, "search", "zebra") == (1, "", "The wiki has no index; run `wiki sync`.\n")


def test_no_answer_is_an_answer(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    write_page("one", "zebra")
    sync(wiki)
    assert run(wiki, capsys, "search", "quaternion") == (0, "", "No page fits.\n")


def test_pages_cannot_send_control_codes_to_the_terminal(
    wiki: Wiki, write_page: WritePage, capsys: Capture
) -> None:
    write_page("one", "zebra \x1b]0;owned\x07 \x1b[31mred\n")
    sync(wiki)
    for arguments in (("search", "zebra"), ("show", "one")):
        out = run(wiki, capsys, *arguments)[1]
        assert "zebra" in out
        assert "\x1b" not in out
        assert "\x07" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("search", "x", "--arch", "sm_91"), "There is no arch `sm_91`; did you mean"),
        (("search", "x", "--dsl", "newest"), "`newest` is no DSL version; give one like 4.8.1."),
        (("show", "on"), "There is no page `on`; did you mean one?"),
        (("hardware", "H200"), "The wiki has no hardware.yaml"),
    ],
)
def test_unknown_names_fail_in_one_sentence(
    wiki: Wiki, write_page: WritePage, capsys: Capture, arguments: tuple[str, ...], sentence: str
) -> None:
    write_page("one")
    sync(wiki)
    code, out, err = run(wiki, capsys, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["serch"], ["search"], ["search", "x", "-k", "0"], ["show"]])
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_wiki_is_found_by_flag_variable_or_folder(
    wiki: Wiki, write_page: WritePage, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_page("one")
    (wiki.root / "techniques" / "deep").mkdir()
    monkeypatch.chdir(wiki.root / "techniques" / "deep")
    assert open_wiki() == wiki
    mine = tmp_path / "mine"
    (mine / "dsl").mkdir(parents=True)
    (mine / "vocabulary.yaml").write_text("tags: {}\n")
    monkeypatch.chdir(mine / "dsl")
    assert open_wiki() == Wiki(mine)
    monkeypatch.chdir("/")
    assert main(["sync"]) == 1
    assert "`wiki init DIR`" in capsys.readouterr().err
    monkeypatch.setenv("KERNEL_WIKI", str(wiki.root))
    assert open_wiki() == wiki
    assert main(["sync", "--wiki", str(tmp_path / "nowhere")]) == 1
    assert "wiki init" in capsys.readouterr().err


def test_init_starts_a_wiki_of_good_pages_and_refuses_a_full_folder(tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "mine"
    assert main(["init", str(target)]) == 0
    mine = open_wiki(target)
    vocabulary = load_vocabulary(mine)
    assert [load_page(mine, path, vocabulary).front.id for path in mine.page_files()]
    assert not mine.index_dir.exists()
    (target / "dsl" / "note.txt").write_text("mine")
    capsys.readouterr()
    assert main(["init", str(target)]) == 1
    assert capsys.readouterr().err == f"The folder {target} is not empty; name a new one.\n"
    assert (target / "dsl" / "note.txt").read_text() == "mine"


def test_a_closed_pipe_is_no_error(wiki: Wiki, write_page: WritePage) -> None:
    for number in range(40):
        write_page(f"page-{number}", "zebra " * 300)
    sync(wiki)
    command = f"{sys.executable} -m kwiki_ingest.cli search zebra -k 40 --json --wiki {wiki.root} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_help_imports_nothing_but_the_parser() -> None:
    assert not modules_after("--help") & {*HEAVY, "numpy", "pydantic", "ruamel", "sqlite3", "tokenizers"}


def test_no_command_imports_heavy_parts_that_it_does_not_need(
    wiki: Wiki, write_page: WritePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNEL_WIKI_MODEL")
    monkeypatch.setenv("KERNEL_WIKI", str(wiki.root))
    (wiki.root / "hardware.yaml").write_text("{}\n")
    write_page("one", "zebra")
    light = {*HEAVY} - {"chromadb"}
    assert not modules_after("sync") & light  # few chunks: the numpy runner encodes them
    for arguments in (["sync"], ["search", "zebra"], ["show", "one"], ["hardware"]):
        assert not modules_after(*arguments) & set(HEAVY), arguments


def test_commands_answer_within_their_budgets(
    wiki: Wiki, write_page: WritePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNEL_WIKI_MODEL")
    monkeypatch.setenv("KERNEL_WIKI", str(wiki.root))
    for number in range(60):
        write_page(f"page-{number}", f"zebra {number % 4}")
    sync(wiki)
    wiki_command = (sys.executable, "-m", "kwiki_ingest.cli")
    # Budgets in wall time are 0.2 s, 1 s and 1 s on an idle machine; the unit here is what this machine
    # needs to start Python and import numpy and pydantic, 0.15 s on the machine that set the factors.
    unit = cpu_s(sys.executable, "-c", "import numpy, pydantic")
    assert cpu_s(*wiki_command, "--help") < 1.3 * unit
    assert cpu_s(*wiki_command, "search", "a zebra crossing") < 8 * unit
    assert cpu_s(*wiki_command, "sync") < 8 * unit


def test_stdout_holds_the_page_and_nothing_else(wiki: Wiki, write_page: WritePage, capsys: Capture) -> None:
    path = write_page("one", "## 标题\n\nText with\ttab.\n")
    code, out, err = run(wiki, capsys, "show", "one")
    assert (code, out, err) == (0, path.read_text(encoding="utf-8"), "")
    assert os.linesep in out


def test_a_terminal_that_lacks_a_character_gets_its_code(
    wiki: Wiki, write_page: WritePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page("one", "a × b\n")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    command = (sys.executable, "-m", "kwiki_ingest.cli", "show", "one", "--wiki", str(wiki.root))
    shown = subprocess.run(command, capture_output=True, check=True)
    assert shown.stdout.endswith(b"a \\xd7 b\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_can_take_is_one_sentence(
    wiki: Wiki, write_page: WritePage, monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    write_page("one")
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = (sys.executable, "-m", "kwiki_ingest.cli", "show", "one", "--wiki", str(wiki.root))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"The output cannot be used: No space left on device.\n")
