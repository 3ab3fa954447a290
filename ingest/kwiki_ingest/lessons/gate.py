"""The one door through which a lesson enters the wiki.

    check  →  decide  →  write  →  sync
    alone     against    under     the index,
              the rest   a lock    after the lock

No model decides; code does. A lesson is acknowledged once its page is on the disk. The index is a
cache: if it cannot be updated now, the lesson stands and the next sync finds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kwiki_ingest.errors import PageError, WikiError, nearest
from kwiki_ingest.lessons import write
from kwiki_ingest.lessons.check import check
from kwiki_ingest.lessons.decide import Action, Verdict, decide
from kwiki_ingest.lessons.errors import LessonRefusedError, LessonWriteError
from kwiki_ingest.lessons.evidence import stands, store_evidence
from kwiki_ingest.load import load_page, render_page
from kwiki_ingest.page import Lesson
from kwiki_ingest.vocabulary import load_vocabulary
from kwiki_ingest.wiki import Wiki

_FRONT_MATTER = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n.*?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class GateDecision:
    """What the gate did, and why."""

    action: Action | Literal["refused"]
    page_id: str
    """The page that says it now: new, standing, or (refused) the one asked for."""
    path: str | None
    """That page's file, relative to the wiki; None when nothing stands."""
    reason: str
    """One sentence."""
    nearest: tuple[str, ...] = ()
    """Ids of the five nearest lessons in the same scope, nearest first."""
    index_problem: str | None = None
    """Why the index does not know of it yet; None when it does."""


@dataclass(frozen=True)
class _Standing:
    """A lesson page as it stands: its record, its file and the exact bytes the decision rests on."""

    lesson: Lesson
    path: Path
    content: bytes


def add_lesson(
    wiki: Wiki,
    lesson: Lesson,
    body: str = "",
    *,
    evidence_files: Mapping[str, bytes] | None = None,
    free_id: bool = False,
    dry_run: bool = False,
) -> GateDecision:
    """Store `lesson` if it earns a place, and make it searchable.

    `body` is Markdown; without one the page says its claim. `evidence_files` maps run ids to the bytes
    of their summaries (see `evidence`). With `free_id` a taken id gets a number instead of a refusal.
    `dry_run` decides and writes nothing. A lesson that breaks a rule comes back as `refused`;
    raises LessonWriteError where the lock or the disk fails, and then nothing was acknowledged.
    """
    files = evidence_files or {}
    # One date object in two fields would be written as a YAML alias, which the loader refuses.
    lesson = lesson.model_copy(update={"last_verified": lesson.last_verified.replace()})
    try:
        check(wiki, lesson, body, files)
        if dry_run:
            return _decision(wiki, _weigh(wiki, lesson, free_id, files)[0])
        with write.locked(wiki):
            verdict, standing = _weigh(wiki, lesson, free_id, files)
            changed = _store(wiki, verdict, body, files, standing)
    except LessonRefusedError as refusal:
        return GateDecision("refused", lesson.id, None, str(refusal))
    return replace(_decision(wiki, verdict), index_problem=_update_index(wiki) if changed else None)


def _weigh(
    wiki: Wiki, lesson: Lesson, free_id: bool, files: Mapping[str, bytes]
) -> tuple[Verdict, dict[str, _Standing]]:
    standing = {entry.lesson.id: entry for entry in _read_lessons(wiki)}
    ids = {path.stem for path in wiki.page_files()}
    for page_id in lesson.related:
        if page_id not in ids:
            raise LessonRefusedError(f"related: there is no page {page_id}; {nearest(page_id, ids)}")
    verdict = decide(
        lesson, [s.lesson for s in standing.values()], lambda run: run in files or stands(wiki, run)
    )
    if verdict.action in ("added", "disputed") and lesson.id in ids:
        if not free_id:
            raise LessonRefusedError(
                f"id: a page {lesson.id} already exists and is never overwritten; choose another"
            )
        renamed = lesson.model_copy(update={"id": _free(lesson.id, ids)})
        return _weigh(wiki, renamed, free_id, files)
    return verdict, standing


def _store(
    wiki: Wiki, verdict: Verdict, body: str, files: Mapping[str, bytes], standing: dict[str, _Standing]
) -> bool:
    """Write in the order in which a crash does least harm: proof, page, then the marks on other pages."""
    changed = list(verdict.others)
    if verdict.action != "duplicate":
        store_evidence(wiki, files)
    if verdict.action in ("added", "disputed"):
        text = render_page(verdict.page, body or verdict.page.claim)
        write.create(wiki.root / _file(verdict.page.id), text.encode())
    elif verdict.action == "merged":
        changed.append(verdict.page)
    try:
        for lesson in changed:
            old = standing[lesson.id]
            write.replace(old.path, old.content, _with_front_matter(lesson, old.content))
    except LessonWriteError as error:
        if verdict.action == "merged":
            raise
        raise LessonWriteError(
            f"{verdict.page.id} is stored, but a page it concerns could not be marked: {error} "
            "Adding it again completes the marks."
        ) from error
    return bool(changed) or verdict.action != "duplicate"


def _with_front_matter(lesson: Lesson, content: bytes) -> bytes:
    """`content` with new front matter and every byte of its body kept."""
    old = _FRONT_MATTER.match(content)
    new = _FRONT_MATTER.match(render_page(lesson, "").encode())
    if old is None or new is None:
        raise LessonWriteError(
            f"{_file(lesson.id)} has front matter that cannot be replaced; run `wiki sync` to see why."
        )
    return new.group() + content[old.end() :]


def _read_lessons(wiki: Wiki) -> list[_Standing]:
    """Every standing lesson. A broken page is left to `wiki sync`, which names its fault."""
    vocabulary = load_vocabulary(wiki)
    found = []
    for path in wiki.page_files():
        if path.relative_to(wiki.root).parts[0] != "lessons":
            continue
        try:
            content = path.read_bytes()
            front = load_page(wiki, path, vocabulary).front
        except (OSError, PageError):
            continue
        if isinstance(front, Lesson):
            found.append(_Standing(front, path, content))
    return found


def _update_index(wiki: Wiki) -> str | None:
    from kwiki_ingest.index.sync import sync

    try:
        sync(wiki, lock_timeout_s=write.LOCK_WAIT_S)
    except WikiError as problem:
        return str(problem)
    return None


def _decision(wiki: Wiki, verdict: Verdict) -> GateDecision:
    path = next(
        (p for p in wiki.page_files() if p.stem == verdict.page.id), wiki.root / _file(verdict.page.id)
    )
    return GateDecision(verdict.action, verdict.page.id, wiki.relative(path), verdict.reason, verdict.nearest)


def _file(page_id: str) -> str:
    return f"lessons/{page_id}.md"


def _free(page_id: str, taken: set[str]) -> str:
    number = 2
    while (candidate := f"{page_id[:90].rstrip('-')}-{number}") in taken:
        number += 1
    return candidate
