"""Rules about what claims rest on: sources, evidence, numbers, versions, and text that must not be there."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kwiki_ingest.errors import PageError, UnknownNameError
from kwiki_ingest.hardware import load_hardware
from kwiki_ingest.lessons.scan import scan
from kwiki_ingest.page import ReferencePage, Source
from kwiki_ingest.truth.book import Book, Finding, sections
from kwiki_ingest.wiki import Wiki

_QUANTITY = re.compile(r"\b(\d[\d.,]*) ?(TB/s|GB/s|[TP]FLOPS?|[TP]FLOP/s|GHz|us|µs|ns|ms|cycles)(?![\w/])")
_ADDRESS = re.compile(r"https?://|\bevidence/")
_VERSION_IN_TEXT = re.compile(r"\bnvidia-cutlass-dsl (\d+\.\d+)")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_GPU = re.compile(r"\b(?:GB|[ABH])\d{2,3}\b")


def encodings(wiki: Wiki) -> Iterator[Finding]:
    """Files are UTF-8 with LF line ends and no byte order mark. Others are read all the same."""
    for path in wiki.page_files():
        data = path.read_bytes()
        if data.startswith(b"\xef\xbb\xbf"):
            message = "the file opens with a byte order mark; save it as UTF-8 without one"
            yield Finding(wiki.relative(path), 1, "encoding", "warning", message)
        before, found, _ = data.partition(b"\r")
        if found:
            line = before.count(b"\n") + 1
            message = "lines end with CR; save the file with LF line ends"
            yield Finding(wiki.relative(path), line, "encoding", "warning", message)


def data_files(book: Book) -> Iterator[Finding]:
    """The hardware table can be read whole."""
    try:
        load_hardware(book.wiki)
    except PageError as problem:
        yield Finding(problem.path, problem.line, "schema", "error", problem.reason)
    except UnknownNameError:  # a wiki without a table
        return


def source_forms(book: Book) -> Iterator[Finding]:
    """A source names a repository and a path in it, or a web address."""
    for leaf in book.leaves:
        for position, source in enumerate(getattr(leaf.page.front, "sources", ())):
            reason = _malformed(source)
            if reason:
                line = leaf.line_of("sources", position)
                yield Finding(leaf.path, line, "source", "error", reason)


def sources_exist(book: Book, clones: Path) -> Iterator[Finding]:
    """Each path exists in its repository at its tag; `clones` holds git repositories, see `_clone`."""
    missing: set[str] = set()
    for leaf in book.leaves:
        for position, source in enumerate(getattr(leaf.page.front, "sources", ())):
            if not source.repo or not source.path or _malformed(source):
                continue
            line = leaf.line_of("sources", position)
            clone = _clone(clones, source.repo)
            if clone is None:
                if source.repo not in missing:
                    message = f"{source.repo} is not among the clones, so its sources are unchecked"
                    yield Finding(leaf.path, line, "source", "warning", message)
                missing.add(source.repo)
                continue
            revision = source.tag or "HEAD"
            if not _git_has(clone, f"{revision}^{{commit}}"):
                message = (
                    f"{source.repo} has no revision `{revision}` in the clones; fetch it or mend the tag"
                )
                yield Finding(leaf.path, line, "source", "error", message)
            elif not _git_has(clone, f"{revision}:{source.path}"):
                message = f"{source.repo} has no `{source.path}` at {revision}; find where it moved"
                yield Finding(leaf.path, line, "source", "error", message)


def sourced_numbers(book: Book) -> Iterator[Finding]:
    """A speed, time or rate on a reference page says whose it is.

    The section around it names a GPU, a publisher of the page's sources or an address. A number without that
    cannot be checked, and is repeated as if it held everywhere.
    """
    for leaf in book.leaves:
        front = leaf.page.front
        if not isinstance(front, ReferencePage):
            continue
        publishers = {name for source in front.sources for name in _publishers(source)}
        for section in sections(leaf.prose):
            text = "\n".join(section.values())
            if _GPU.search(text) or _ADDRESS.search(text) or any(name in text for name in publishers):
                continue
            for number, line in section.items():
                for found in _QUANTITY.finditer(line):
                    message = (
                        f"`{found[0]}` has no source in its section; say on which GPU or by whom it was found"
                    )
                    yield Finding(leaf.path, number, "number", "error", message)


def versions(book: Book) -> Iterator[Finding]:
    """Pages hold for the installed DSL, and speak of it rather than of an older one."""
    installed = Version(book.symbols.dsl)
    for leaf in book.leaves:
        front = leaf.page.front
        if not SpecifierSet(front.dsl).contains(installed, prereleases=True):
            message = (
                f"the page is for DSL {front.dsl}, and {installed} is installed; check it again or retire it"
            )
            yield Finding(leaf.path, leaf.line_of("dsl"), "version", "warning", message)
        for number, line in leaf.prose.items():
            for found in _VERSION_IN_TEXT.finditer(line):
                if Version(found[1]).release[:2] < installed.release[:2]:
                    message = (
                        f"the text speaks of DSL {found[1]}, and {installed} is installed; check it again"
                    )
                    yield Finding(leaf.path, number, "version", "warning", message)
        if front.last_verified > dt.date.today() + dt.timedelta(days=1):  # it may be tomorrow elsewhere
            line_number = leaf.line_of("last_verified")
            message = f"`last_verified` is {front.last_verified}, which has not come yet"
            yield Finding(leaf.path, line_number, "version", "error", message)


def unsafe_text(wiki: Wiki) -> Iterator[Finding]:
    """No secrets, and nothing that commands a model that reads the page."""
    for path in wiki.page_files():
        text = path.read_bytes().decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        for number, line in enumerate(text.split("\n"), 1):
            found = scan({"line": line})
            if found:
                message = f"the line holds {found.what}; remove it"
                yield Finding(wiki.relative(path), number, "unsafe-text", "error", message)


def _malformed(source: Source) -> str | None:
    if source.repo and not _REPOSITORY.fullmatch(source.repo):
        return f"`{source.repo}` is no repository; write OWNER/NAME"
    if source.path and (source.path.startswith("/") or ".." in source.path.split("/")):
        return f"`{source.path}` is no path inside a repository; write it relative to the root"
    if source.url:
        parts = urlsplit(source.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            return f"`{source.url}` is no web address; write it with https://"
    return None


def _clone(clones: Path, repository: str) -> Path | None:
    """The clone of OWNER/NAME: OWNER/NAME, NAME, or one of them with `.git`, as `git clone` names them."""
    places = (repository, repository.partition("/")[2])
    folders = (clones / f"{place}{suffix}" for place in places for suffix in ("", ".git"))
    return next((folder for folder in folders if folder.is_dir()), None)


def _git_has(clone: Path, thing: str) -> bool:
    command = ["git", "-C", str(clone), "cat-file", "-e", thing]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _publishers(source: Source) -> Iterator[str]:
    if source.repo:
        yield from source.repo.split("/")
        yield from (name.upper() for name in source.repo.split("/"))
    yield source.title
