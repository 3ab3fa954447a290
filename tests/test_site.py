"""The site: docs and wiki together, strict, without a network, and with no trust in what pages say."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from kwiki_ingest.load import load_page
from kwiki_ingest.truth.outcomes import Recheck, open_outcomes
from kwiki_ingest.wiki import Wiki

ROOT = Path(__file__).parent.parent

HOSTILE = """---
id: hostile
title: "Hostile <script>alert(1)</script>: title"
type: lesson
kind: tuning
arch: [sm_90a]
technique: nothing
claim: A claim with <img src=x onerror=alert(2)> in it.
aliases: ["<b>bold</b>"]
created: 2026-11-30
last_verified: 2026-11-30
---

<script>alert(3)</script>

Text <img src=x onerror=alert(4)> and <iframe src="https://evil.example"></iframe>.

[run](javascript:alert(5)) [run](JaVa&#x09;script:alert(6)) [data](data:text/html,alert7) [ok](https://example.org)

![call home](https://evil.example/pixel) ![call home](//evil.example/pixel)

```python
if a < b: print("<script>alert(8)</script>")
```
"""


class Targets(HTMLParser):
    """What a page loads, where its links lead, and the scripts and handlers inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.handlers += [name for name in values if name.startswith("on")]
        if "src" in values:
            self.loads.append(values["src"])
        if "href" in values:
            is_loaded = tag == "link" and values.get("rel") != "canonical"
            (self.loads if is_loaded else self.links).append(values["href"])


def build(project: Path, site: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def targets(page: Path) -> Targets:
    parser = Targets()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The site's own sources with a wiki of one's choice."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "wiki" / "lessons").mkdir(parents=True)
    return tmp_path


def test_every_page_of_the_wiki_is_on_the_site_with_its_card(site: Path) -> None:
    wiki = Wiki(ROOT / "wiki")
    pages = [wiki.relative(path) for path in wiki.page_files()]
    assert pages
    for page in pages:
        html = (site / "wiki" / page).with_suffix(".html").read_text(encoding="utf-8")
        assert html.count('<div class="card">') == 1
        assert "last verified 20" in html


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert [target for target in targets(page).loads if re.match(r"(?:[a-z]+:)?//", target)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")) == []


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links are relative to the address that was asked for
            continue
        for link in targets(page).links:
            path = link.split("#")[0].split("?")[0]
            if path and not re.match(r"[a-z]+:|/", path):
                assert (page.parent / path).exists(), f"{page.relative_to(site)}: {link}"


def test_the_wiki_can_be_searched_and_browsed_by_tag(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any(entry["location"].startswith("wiki/dsl/meta-stage.html") for entry in index["docs"])
    assert "wiki/dsl/meta-stage.html" in (site / "tags.html").read_text(encoding="utf-8")


def test_a_fence_that_claims_to_compile_says_for_what(site: Path) -> None:
    html = (site / "wiki" / "dsl" / "meta-stage.html").read_text(encoding="utf-8")
    assert '<span class="filename">compiles for sm_90a, sm_100a</span>' in html


def test_a_page_whose_code_failed_says_so_until_it_is_edited(project: Path, tmp_path: Path) -> None:
    page = project / "wiki" / "lessons" / "hostile.md"
    page.write_text(HOSTILE)
    wiki = Wiki(project / "wiki")
    mark = Recheck(load_page(wiki, page).content_hash, "the code on line 30 fails")
    with open_outcomes(wiki) as outcomes:
        outcomes.set_rechecks(["hostile"], {"hostile": mark})

    def shown() -> bool:
        assert build(project, tmp_path / "site").returncode == 0
        html = (tmp_path / "site" / "wiki" / "lessons" / "hostile.html").read_text(encoding="utf-8")
        assert ("needs recheck" in html) == (mark.reason in html)
        return mark.reason in html

    assert shown()
    page.write_text(HOSTILE + "\nEdited.\n")
    assert not shown()


def test_a_hostile_lesson_is_shown_as_text_and_can_do_nothing(project: Path, tmp_path: Path) -> None:
    (project / "wiki" / "lessons" / "hostile.md").write_text(HOSTILE)
    done = build(project, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    page = tmp_path / "site" / "wiki" / "lessons" / "hostile.html"
    html = page.read_text(encoding="utf-8")
    for number in range(1, 9):
        assert f"<script>alert({number})" not in html
    assert "&lt;script&gt;alert(3)" in html
    found = targets(page)
    assert [
        target for target in (*found.loads, *found.links) if re.search("evil|alert|javascript:|data:", target)
    ] == []
    assert found.handlers == []
    assert "https://example.org" in found.links


def test_a_broken_page_fails_a_strict_build_with_its_place(project: Path, tmp_path: Path) -> None:
    (project / "wiki" / "lessons" / "broken.md").write_text("---\nid: broken\nid: broken\n---\n")
    done = build(project, tmp_path / "site")
    assert done.returncode == 1
    assert "wiki/lessons/broken.md:3: the key `id` stands twice" in done.stdout + done.stderr
