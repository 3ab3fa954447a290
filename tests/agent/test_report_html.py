"""The HTML report is one file that loads nothing, runs nothing, and shows what the Markdown shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from kwiki_agent.graph import drive, locate
from kwiki_agent.report import write_report
from kwiki_agent.report_html import write_html
from kwiki_agent.table import markdown_table
from kwiki_kernels.evaluation import Status
from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.profile.iket import Pipeline, RoleTime

from tests.agent.toy import FormulaExecutor, MakeLoop


class Tags(HTMLParser):
    """Every tag with its attributes, and the text between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(report: str, folder: Path) -> Tags:
    (folder / "report.md").write_text(report, encoding="utf-8")
    return Tags(write_html(folder / "report.md").read_text(encoding="utf-8"))


def test_a_runs_report_has_a_twin_with_its_tables_and_plots(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(use_cards=False, search_only=True, max_candidates=4)
    drive(loop)
    text = (loop.run.path / "report.html").read_text(encoding="utf-8")
    page = Tags(text)
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [str(picture["src"])[:26] for picture in pictures] == ["data:image/svg+xml;base64,"]
    assert "c0004" in page.text
    assert "How to repeat it" in page.text
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def test_profiles_put_into_the_run_are_shown_in_both(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(use_cards=False, search_only=True, max_candidates=4)
    drive(loop)
    folder = loop.run.path / "profile" / "c0002"
    folder.mkdir(parents=True)
    (folder / "timeline.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "latency.svg").write_text(f"<svg><!-- {'x' * 600_000} --></svg>")
    load = RoleTime(role="load", warps=2, busy_us=10, waiting_us=30)
    multiply = RoleTime(role="multiply", warps=4, busy_us=120, waiting_us=40)
    traced = Pipeline(kernel="k", duration_us=42, roles=(multiply, load), overlap={"load+multiply": 0.75})
    said = diagnose({"spills": 3.0, "roofline_share": 0.5}, traced)
    (folder / "diagnosis.json").write_text(said.model_dump_json())
    (folder.parent / "c0003").mkdir()
    (folder.parent / "c0003" / "diagnosis.json").write_text('{"bound": "none"}')
    write_report(loop.run, loop.task, locate(loop).state)
    text = (loop.run.path / "report.md").read_text()
    assert "`c0003`: its diagnosis.json is not what `kernel-agent profile --json` prints." in text
    assert f"`c0002` is latency-bound, register-spills. Next edit: {said.next_edit}" in text
    assert "| register-spills | spills | 3 | > 0 |" in text
    assert "Traced: one cluster, 42.0 us." in text
    assert "| multiply | 4 | 30.00 | 10.00 | 25% |" in text
    page = Tags((loop.run.path / "report.html").read_text())
    pictures = [attributes.get("alt") for tag, attributes in page.tags if tag == "img"]
    assert "c0002 timeline" in pictures
    assert "c0002 latency" not in pictures  # too large for a page that opens at once: only named
    assert "profile/c0002/latency.svg" in page.text
    assert "load+multiply 75%" in page.text


@pytest.mark.parametrize(
    "words",
    [
        "<script>alert(1)</script>",
        "[click](javascript:alert(1))",
        "![track](https://example.org/x.png)",
        "![out](../secret.svg)",
        '<img src=x onerror="alert(1)">',
        "&lt;script&gt;",
        "<https://example.org>",
    ],
)
def test_quoted_words_stay_words(tmp_path: Path, words: str) -> None:
    (tmp_path.parent / "secret.svg").write_text("<svg/>")
    page = page_of(f"# Run\n\nIntent: {words}\n\n{words}\n", tmp_path)
    body = page.tags[[tag for tag, _ in page.tags].index("body") :]
    assert {tag for tag, _ in body} <= {"body", "h1", "p"}
    assert ("meta", "Content-Security-Policy") in [(t, a.get("http-equiv")) for t, a in page.tags]


def test_a_cell_cannot_break_its_table(tmp_path: Path) -> None:
    table = markdown_table([("candidate", "intent"), ("c0001", "a | b\nc")])
    page = page_of(f"# Run\n\n{table}\n", tmp_path)
    assert [tag for tag, _ in page.tags].count("td") == 2
    assert "a | b c" in page.text


def test_a_failure_without_a_message_is_told_too(make_toy_loop: MakeLoop) -> None:
    executor = FormulaExecutor()
    executor.failing["c0002"] = Status.COMPILE_ERROR
    loop = make_toy_loop(executor, use_cards=False, search_only=True, max_candidates=4)
    drive(loop)
    for path in loop.run.path.glob("**/c0002.json"):
        path.write_text(re.sub(r'"log": ?"[^"]*"', '"log": ""', path.read_text()))
    report = write_report(loop.run, loop.task, locate(loop).state).read_text(encoding="utf-8")
    assert "- `c0002` COMPILE_ERROR: no message" in report
