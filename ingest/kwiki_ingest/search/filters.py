"""Which pages may answer: decided before any ranking, so that no other architecture's page can leak in."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from kwiki_ingest.errors import UnknownNameError, nearest
from kwiki_ingest.index.manifest import Manifest
from kwiki_ingest.page import Arch, PageType, Status

DEFAULT_STATUSES = ("candidate", "confirmed", "disputed")


@dataclass(frozen=True)
class StoredPage:
    """A page as the manifest keeps it: path relative to the wiki, front matter as plain values."""

    path: str
    front: dict[str, Any]


@dataclass(frozen=True)
class Filters:
    """Conditions that every hit meets; None asks for nothing."""

    arch: str | None = None
    statuses: Collection[str] = DEFAULT_STATUSES
    types: Collection[str] | None = None
    dsl: str | None = None

    def __post_init__(self) -> None:
        """Refuse names that no page can have; raises UnknownNameError."""
        _known("arch", [self.arch] if self.arch else (), get_args(Arch))
        _known("status", self.statuses, tuple(Status))
        _known("type", self.types or (), tuple(PageType))
        if self.dsl is not None and not _is_version(self.dsl):
            raise UnknownNameError(f"`{self.dsl}` is no DSL version; give one like 4.8.1.")

    def select(self, manifest: Manifest) -> dict[str, StoredPage]:
        """The pages that meet the conditions, by id."""
        return {page.front["id"]: page for page in _pages(manifest) if self._meets(page.front)}

    def _meets(self, front: dict[str, Any]) -> bool:
        # A superseded page is kept for its history and, like a retired one, has to be asked for.
        if front["status"] not in self.statuses:
            return False
        if front.get("superseded_by") and "retired" not in self.statuses:
            return False
        if self.arch and self.arch != "any" and not {self.arch, "any"} & set(front["arch"]):
            return False
        if self.types is not None and front["type"] not in self.types:
            return False
        return self.dsl is None or _in_range(self.dsl, front["dsl"])


def _known(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(f"There is no {what} `{name}`; {nearest(name, known)}")


def _pages(manifest: Manifest) -> Iterator[StoredPage]:
    for path, front in manifest.sql.execute("SELECT path, front FROM pages ORDER BY id"):
        yield StoredPage(path, json.loads(front))


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _in_range(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(specifier).contains(version, prereleases=True)
