"""`wiki verify`: code does what its fence claims, and a snippet that misbehaves harms no other."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from kwiki_ingest.cli import main
from kwiki_ingest.index.sync import sync
from kwiki_ingest.search.retrieve import by_profile, search
from kwiki_ingest.truth.fences import Claim, ClaimError, Fence, fences
from kwiki_ingest.truth.outcomes import FILE, rechecks
from kwiki_ingest.truth.snippets import Report, verify
from kwiki_ingest.truth.symbols import DslError
from kwiki_ingest.wiki import Wiki

from tests.ingest.other_dsl import CUTLASS, make_interpreter
from tests.ingest.sample_pages import WritePage

ROOT = Path(__file__).parent.parent.parent
COMPILES = "import cutlass\n\ncutlass.compile()\n"
FENCE_LINE = 12
"""Where the fence of a page written by `fenced` opens in its file."""


def fenced(claim: str, code: str) -> str:
    return f"```python {claim}\n{code}```\n"


def failures(report: Report) -> list[tuple[str, int, str]]:
    return [(r.snippet.path, r.line, r.outcome.message) for r in report.failed]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_interpreter(tmp_path / "dsl", "4.8.0")


def test_every_claim_of_the_wiki_holds() -> None:
    report = verify(Wiki(ROOT / "wiki"))  # keeps what it knows beside the wiki's index
    assert failures(report) == []
    assert [str(problem) for problem in report.problems] == []
    assert report.skipped == {}
    assert len(report.results) > report.fragments


def test_a_kernel_is_compiled_for_each_architecture_by_the_installed_dsl(wiki: Wiki) -> None:
    shutil.copytree(ROOT / "wiki" / "dsl", wiki.root / "dsl")
    report = verify(wiki, ["tiled-copy"])
    assert [(r.snippet.trial.arch, r.outcome.passed) for r in report.results] == [
        ("sm_90a", True),
        ("sm_100a", True),
    ]


def test_code_that_compiles_nothing_does_not_compile(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("compiles=sm_90a", "import cutlass\n"))
    assert failures(verify(wiki, python=python)) == [
        (
            "techniques/one.md",
            FENCE_LINE,
            "it compiled no kernel for sm_90a; call cute.compile with fake tensors",
        )
    ]


def test_a_failure_names_its_line_in_the_file(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("runs", "a = 1\nb = [1, 2]\nprint(b[a + 1])\n"))
    assert failures(verify(wiki, python=python)) == [
        ("techniques/one.md", FENCE_LINE + 3, "IndexError: list index out of range")
    ]


def test_a_snippet_that_hangs_or_crashes_is_named_and_the_rest_goes_on(
    wiki: Wiki, write_page: WritePage, python: Path
) -> None:
    write_page("crash", fenced("compiles=sm_90a", "import os\nos.abort()\n"))
    write_page("good", fenced("compiles=sm_90a", COMPILES))
    write_page("hang", fenced("compiles=sm_90a", "while True: pass\n"))
    report = verify(wiki, python=python, limit_s=3, workers=2)
    assert failures(report) == [
        ("techniques/crash.md", FENCE_LINE, "it crashed the process (SIGABRT)"),
        ("techniques/hang.md", FENCE_LINE, "it did not end within 3 s and was killed"),
    ]
    assert len(report.results) == 3
    again = verify(wiki, python=python, limit_s=3, workers=2)
    assert again.tried == 2  # a busy machine may have been to blame


def test_nothing_that_a_snippet_starts_outlives_it(
    wiki: Wiki, write_page: WritePage, python: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(1.5); open({str(mark)!r}, 'w')"
    write_page(
        "one",
        fenced("runs", f'import subprocess, sys\nsubprocess.Popen([sys.executable, "-c", "{child}"])\n'),
    )
    assert failures(verify(wiki, python=python)) == []
    time.sleep(2.5)
    assert not mark.exists()


def test_snippets_do_not_see_the_callers_variables(
    wiki: Wiki, write_page: WritePage, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "s3cret")
    write_page("one", fenced("runs", "import os\nassert 'SOME_TOKEN' not in os.environ\n"))
    assert failures(verify(wiki, python=python)) == []


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("list index", "[][0]\n", None),
        ('"list  index"', "[][0]\n", None),
        ("list index", "print('list index')\n", "it was to fail, and it succeeded"),
        (
            "KeyError",
            "[][0]\n",
            "it was to fail with `KeyError`, but failed with: IndexError: list index out of range",
        ),
    ],
)
def test_an_error_is_the_one_that_the_fence_names(
    wiki: Wiki, write_page: WritePage, python: Path, text: str, code: str, message: str | None
) -> None:
    write_page("one", fenced(f"error={text}", code), arch="[sm_90a]")
    assert [m for _, _, m in failures(verify(wiki, python=python))] == ([message] if message else [])


def test_only_what_changed_is_tried_again(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("compiles=sm_90a,sm_100a", COMPILES))
    write_page("two", fenced("runs", "x = 1\n"))
    assert verify(wiki, python=python).tried == 3
    write_page("one", "Some words first.\n\n" + fenced("compiles=sm_90a,sm_100a", COMPILES))
    assert verify(wiki, python=python).tried == 0
    write_page("two", fenced("runs", "x = 2\n"))
    assert verify(wiki, python=python).tried == 1
    assert verify(wiki, python=python, again=True).tried == 3


def test_failures_are_known_too_and_still_reported(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("runs", "x = 1 / 0\n"))
    first = verify(wiki, python=python)
    second = verify(wiki, python=python)
    assert (first.tried, second.tried) == (1, 0)
    assert failures(first) == failures(second) != []


def test_a_damaged_cache_is_made_anew(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("runs", "x = 1\n"))
    verify(wiki, python=python)
    (wiki.index_dir / FILE).write_bytes(b"not a database, and longer than its header would be" * 40)
    assert rechecks(wiki) == {}
    assert verify(wiki, python=python).tried == 1


def test_a_page_whose_code_fails_under_another_dsl_says_so_wherever_it_is_found(
    wiki: Wiki, write_page: WritePage, python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = make_interpreter(
        tmp_path / "newer", "4.9.0", CUTLASS.replace("def compile", "def compile_kernel")
    )
    body = "zebra\n\n" + fenced("compiles=sm_90a", COMPILES)
    write_page("one", body, triggers="[{metric: spill_bytes, op: '>', value: 0}]")
    write_page("two", "zebra\n")
    sync(wiki)
    verify(wiki, python=python)
    assert [hit.needs_recheck for hit in search(wiki, "zebra")] == [None, None]

    verify(wiki, python=newer)
    reason = "the code on line 15 for sm_90a fails with nvidia-cutlass-dsl 4.9.0; it held with 4.8.0"
    assert {hit.page_id: hit.needs_recheck for hit in search(wiki, "zebra")} == {"one": reason, "two": None}
    assert [hit.needs_recheck for hit in by_profile(wiki, {"spill_bytes": 8.0})] == [reason]
    assert main(["search", "zebra", "--wiki", str(wiki.root)]) == 0
    assert f"  needs recheck: {reason}\n" in capsys.readouterr().out
    assert "needs" not in (wiki.root / "techniques" / "one.md").read_text()  # the page itself is untouched

    write_page("one", body.replace("zebra", "zebra crossing"))
    sync(wiki)
    assert [hit.needs_recheck for hit in search(wiki, "zebra")] == [None, None]
    verify(wiki, python=newer)
    assert [hit.page_id for hit in search(wiki, "zebra") if hit.needs_recheck] == ["one"]
    verify(wiki, python=python)
    assert [hit.needs_recheck for hit in search(wiki, "zebra")] == [None, None]


def test_pages_for_another_dsl_are_left_out_by_name(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    write_page("one", fenced("runs", "x = 1 / 0\n"), dsl='"<4.8"')
    report = verify(wiki, python=python)
    assert (report.results, dict(report.skipped)) == ((), {"techniques/one.md": "it is for DSL <4.8"})


def test_code_of_lessons_runs_only_when_asked_for(wiki: Wiki, write_page: WritePage, python: Path) -> None:
    path = write_page("one", fenced("runs", "x = 1 / 0\n"), folder="lessons", type="lesson", kind="tuning")
    text = path.read_text().replace(
        "confidence: verified\n", "technique: t\nclaim: A claim of some length.\n"
    )
    path.write_text("\n".join(line for line in text.split("\n") if not line.startswith("sources")))
    assert verify(wiki, python=python).results == ()
    assert len(verify(wiki, ["one"], python=python).failed) == 1


def test_broken_pages_and_claims_are_named_and_the_rest_goes_on(
    wiki: Wiki, write_page: WritePage, python: Path
) -> None:
    write_page("broken", title="a: b")
    write_page("mute", "```python\nx = 1\n```\n")
    write_page("two", fenced("runs", "x = 1\n"))
    report = verify(wiki, python=python)
    assert [(p.path, p.line) for p in report.problems] == [
        ("techniques/broken.md", 3),
        ("techniques/mute.md", FENCE_LINE),
    ]
    assert len(report.results) == 1


def test_the_command_reports_by_file_and_line(
    wiki: Wiki, write_page: WritePage, python: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page("one", fenced("runs", "raise ValueError('no \\x1b[31m colours')\n"))
    arguments = ["verify", "--wiki", str(wiki.root), "--python", str(python)]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == (
        "techniques/one.md:13: ValueError: no colours\n"
        "DSL 4.8.0: 1 claims on 1 pages, 1 fail; 1 tried now, 0 fragments left alone.\n"
    )
    assert err == ""
    assert main([*arguments, "--json"]) == 1
    values = json.loads(capsys.readouterr().out)
    assert values["pages"]["techniques/one.md"][0]["holds"] is False
    assert list(values["needs_recheck"]) == ["one"]


def test_an_interpreter_without_the_dsl_is_one_sentence(wiki: Wiki, tmp_path: Path) -> None:
    with pytest.raises(DslError, match=r"is no Python with nvidia-cutlass-dsl; install it there\."):
        verify(wiki, python=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("info", "claim"),
    [
        ("compiles=sm_90a, sm_100a", Claim("compiles", ("sm_90a", "sm_100a"))),
        ("runs", Claim("runs")),
        ("fragment", Claim("fragment")),
        ("error='S ptr alignment = 16'", Claim("error", text="S ptr alignment = 16")),
    ],
)
def test_claims_are_read(info: str, claim: Claim) -> None:
    assert Fence(1, "python", info, "").claim() == claim


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ("", "the fence claims nothing"),
        ("compiles", "`compiles` needs a value"),
        ("compiles=sm_91a", "there is no arch `sm_91a`; did you mean"),
        ("error=", "`error` needs a value"),
        ("compile=sm_90a", "`compile=sm_90a` is no claim; did you mean compiles"),
    ],
)
def test_claims_that_cannot_be_tried_are_refused(info: str, reason: str) -> None:
    with pytest.raises(ClaimError) as caught:
        Fence(1, "python", info, "").claim()
    assert str(caught.value).startswith(reason)


def test_fences_are_found_where_they_stand() -> None:
    front = "---\ntitle: |\n  ```python runs\n---\n"
    text = f"{front}```text\n```python runs\n```\n  ````py runs\n  a\n  ```\n  ````\n~~~\nopen"
    found = [(f.line, f.language, f.is_python, f.code) for f in fences(text)]
    assert found == [
        (5, "text", False, "```python runs\n"),
        (8, "py", True, "a\n```\n"),
        (12, "", False, "open\n"),
    ]
