"""Open questions of the wiki: lessons that measured the opposite of each other, and what would decide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kwiki_ingest.index.manifest import open_for_reading
from kwiki_ingest.page import PageType, Status
from kwiki_ingest.search.filters import Filters
from kwiki_ingest.wiki import Wiki

Settings = dict[str, bool | int | str]


@dataclass(frozen=True)
class Dispute:
    """Two lessons that contradict each other, and the knobs that each recommends, in the same order.

    What decides is one run that measures both settings side by side, all else equal.
    """

    pages: tuple[str, str]
    settings: tuple[Settings, Settings]


def open_disputes(wiki: Wiki, *, arch: str, op: str) -> list[Dispute]:
    """The disputes about this operator on this architecture that knobs can decide.

    Raises IndexMissingError before the first sync.
    """
    with open_for_reading(wiki.index_dir) as manifest:
        disputed = Filters(arch, (Status.DISPUTED,), (PageType.LESSON,)).select(manifest)
    found = []
    for page_id, page in disputed.items():
        for other_id in page.front.get("contradicts", ()):
            other = disputed.get(other_id)
            if other is None or other_id <= page_id or page.front.get("op") != op:
                continue
            left, right = _settings(page.front), _settings(other.front)
            if left and right and left.keys() == right.keys() and left != right:
                found.append(Dispute((page_id, other_id), (left, right)))
    return found


def _settings(front: dict[str, Any]) -> Settings:
    """What a lesson sets knobs to; a bound is no setting."""
    return {knob["name"]: knob["value"] for knob in front.get("knobs", ()) if knob["op"] == "=="}
