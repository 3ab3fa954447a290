"""Bring the wiki into the site: its pages, their front matter as a card, and their text as mere text.

MkDocs calls the `on_*` functions. Nothing is copied into docs/: the pages are read where they stand, by
the wiki's own strict loader. A page that it refuses is a warning, which fails a build with --strict.
"""

from __future__ import annotations

import html
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

import yaml
from jinja2 import Environment, FileSystemLoader
from kwiki_ingest.errors import PageError
from kwiki_ingest.load import Page, load_page
from kwiki_ingest.truth.outcomes import rechecks
from kwiki_ingest.vocabulary import load_vocabulary
from kwiki_ingest.wiki import Wiki
from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page as SitePage

log = logging.getLogger("mkdocs.hooks.wiki_pages")

SECTIONS = {
    "dsl": "CuTe DSL", "primitives": "Primitives", "hopper": "Hopper", "blackwell": "Blackwell",
    "techniques": "Techniques", "profiling": "Profiling", "patterns": "Patterns", "pitfalls": "Pitfalls",
    "kernels": "Kernels", "migration": "Migration", "lessons": "Lessons",
}  # fmt: skip
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w+)[ \t]+(?P<claim>\S[^\n]*)$", re.MULTILINE)
_CARD = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make all Markdown of the site plain text: no raw HTML, no scripts, nothing loaded from elsewhere."""
    config.markdown_extensions.append(PlainText())  # Markdown takes instances too
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every page of the wiki, and the section of the navigation that lists them."""
    wiki = _wiki(config)
    pages = _load(wiki)
    for page in pages:
        file = File.generated(config, f"wiki/{page.path}", content=_markdown(page))
        file.wiki_page = page  # type: ignore[attr-defined]
        files.append(file)
    sections: list[Any] = []
    if (wiki.root / "index.md").exists():
        files.append(File.generated(config, "wiki/index.md", abs_src_path=str(wiki.root / "index.md")))
        sections.append("wiki/index.md")
    for folder, title in SECTIONS.items():
        inside = sorted((p for p in pages if p.path.startswith(f"{folder}/")), key=lambda p: p.front.title)
        if inside:
            sections.append({title: [{_title(p): f"wiki/{p.path}"} for p in inside]})
    if sections and config.nav:
        config.nav.insert(len(config.nav) - 1, {"Wiki": sections})
    return files


def on_page_content(text: str, *, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Put the card above the text of a wiki page."""
    wiki_page: Page | None = getattr(page.file, "wiki_page", None)
    if wiki_page is None:
        return text
    titles = {}
    for file in files.documentation_pages():
        other: Page | None = getattr(file, "wiki_page", None)
        if other is not None:
            titles[other.front.id] = (other.front.title, file.url_relative_to(page.file))
    mark = rechecks(_wiki(config)).get(wiki_page.front.id)
    recheck = mark.reason if mark and mark.content_hash == wiki_page.content_hash else None
    card = _CARD.get_template("card.html")
    return card.render(front=wiki_page.front, titles=titles, source=_source, recheck=recheck) + text


def _wiki(config: MkDocsConfig) -> Wiki:
    return Wiki(Path(config.config_file_path).parent / "wiki")


class PlainText(Extension):
    """Markdown whose raw HTML is shown as text and whose links can neither run nor load anything.

    A lesson may come from a model or from strangers, so the site must not trust it.
    """

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 -- the name that Markdown calls
        """Called by Markdown."""
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")
        md.treeprocessors.register(_SafeTargets(md), "safe_targets", 1)  # before MkDocs checks the links


class _SafeTargets(Treeprocessor):
    def run(self, root: Element) -> None:
        for element in root.iter():
            for attribute, schemes in (("href", {"", "http", "https", "mailto"}), ("src", {""})):
                target = element.get(attribute)
                if target is not None and not _is_allowed(target, schemes):
                    element.set(attribute, "#")


def _is_allowed(target: str, schemes: set[str]) -> bool:
    # Browsers decode entities, then skip control characters and spaces in front of and inside a scheme.
    parts = urlsplit(re.sub(r"[\x00-\x20\x7f]", "", html.unescape(target)))
    return parts.scheme.lower() in schemes and not (parts.netloc and schemes == {""})


def _load(wiki: Wiki) -> list[Page]:
    vocabulary = load_vocabulary(wiki)
    pages = []
    for path in wiki.page_files():
        try:
            pages.append(load_page(wiki, path, vocabulary))
        except PageError as error:
            log.warning("wiki/%s", error)
    return pages


def _markdown(page: Page) -> str:
    """The page for MkDocs: title and tags as its metadata, fences with their claim as a caption."""
    front = page.front
    meta = {
        "title": _title(page),
        "tags": sorted({*front.tags, *(arch for arch in front.arch if arch != "any")}),
    }
    body = _FENCE.sub(_captioned, page.body)
    return f"---\n{yaml.safe_dump(meta, allow_unicode=True)}---\n\n{body}"


def _title(page: Page) -> str:
    """Templates print titles as they are."""
    return html.escape(page.front.title, quote=False)


def _captioned(match: re.Match[str]) -> str:
    claim = match["claim"].replace('"', "'")
    key, _, value = claim.partition("=")
    match key:
        case "compiles":
            caption = f"compiles for {value.replace(',', ', ')}"
        case "error":
            caption = f"fails with: {value}"
        case _:
            caption = claim
    return f'{match["fence"]}{match["language"]} title="{caption}"'


def _source(source: Any) -> str | None:
    """The address of a source: as given, or the file at its tag on GitHub."""
    if source.url:
        return str(source.url) if _is_allowed(source.url, {"http", "https"}) else None
    return f"https://github.com/{source.repo}/blob/{source.tag or 'main'}/{source.path}"
