"""What happens to a lesson: a pure function of the lesson and the standing ones.

Nothing here reads or writes a file, and no model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from kwiki_ingest.lessons.errors import LessonRefusedError
from kwiki_ingest.lessons.scope import Relation, overlap, proven_effect, relation, scope_of, sign
from kwiki_ingest.page import Confidence, Effect, Lesson, Status

Action = Literal["added", "merged", "duplicate", "disputed"]

NEAREST = 5
OF_COMPILED_CODE = {
    "registers", "spill_bytes", "local_loads", "local_stores", "spills", "smem_bytes", "threads_per_cta",
    "ctas_per_sm", "occupancy", "instructions", "tensor_instructions", "global_load_bits",
    "global_store_bits",
}  # fmt: skip
"""Metrics of the vocabulary that need no run."""
RELATED = 0.5
"""Token overlap from which lessons of different scopes point at each other."""


@dataclass(frozen=True)
class Verdict:
    """`page` is the lesson as it shall stand: new, merged, or (for a duplicate) as it already stands."""

    action: Action
    page: Lesson
    others: tuple[Lesson, ...]
    """Standing lessons whose links or status change with it."""
    reason: str
    nearest: tuple[str, ...]


def decide(new: Lesson, standing: Sequence[Lesson], has_summary: Callable[[str], bool]) -> Verdict:
    """Weigh `new` against `standing`. `has_summary` tells whether a run's summary is in the wiki.

    Raises LessonRefusedError where `supersedes` asks for more than the rules give.
    """
    superseded = _superseded(new, standing)
    rivals = sorted((old for old in standing if old not in superseded), key=lambda old: _closeness(new, old))
    in_scope = [old for old in rivals if scope_of(old) == scope_of(new)]
    nearest = tuple(old.id for old in in_scope[:NEAREST])
    found: dict[Relation, list[Lesson]] = {kind: [] for kind in Relation}
    for old in in_scope:
        kind = relation(new, old)
        if old.status is not Status.RETIRED or kind is Relation.REPEAT:
            found[kind].append(old)

    if found[Relation.REPEAT]:
        old = found[Relation.REPEAT][0]
        return Verdict("duplicate", old, _marks(old, standing), _says_the_same(old), nearest)
    if found[Relation.SAME]:
        old = found[Relation.SAME][0]
        merged = _merge(new, old, has_summary)
        return Verdict("merged", merged, (), _what_the_run_changed(new, old, merged), nearest)
    if found[Relation.OPPOSITE]:
        opponents = tuple(old.id for old in found[Relation.OPPOSITE])
        page = _changed(_graded(new), status=Status.DISPUTED, contradicts=opponents)
        reason = (
            f"the opposite of {', '.join(opponents)} was measured in the same scope; both stand as disputed"
        )
        return Verdict("disputed", page, _marks(page, standing), reason, nearest)
    page = _graded(new)
    near = [old.id for old in rivals if old.status is not Status.RETIRED and overlap(new, old) >= RELATED]
    page = _changed(page, related=_union(page.related, near[:NEAREST]))
    reason = "no standing lesson says this in the same scope"
    if superseded:
        reason += f"; it supersedes {', '.join(old.id for old in superseded)}"
    return Verdict("added", page, _marks(page, standing), reason, nearest)


def _closeness(new: Lesson, old: Lesson) -> tuple[float, str]:
    return -overlap(new, old), old.id


def _marks(page: Lesson, standing: Sequence[Lesson]) -> tuple[Lesson, ...]:
    """The standing lessons that must say that `page` disputes, supersedes or relates to them.

    Also asked for duplicates: it completes what a crash between two files left undone.
    """
    marked = []
    for old in standing:
        fields: dict[str, Any] = {}
        if old.id in page.contradicts and old.status is not Status.RETIRED:
            fields |= {"status": Status.DISPUTED, "contradicts": _union(old.contradicts, [page.id])}
        if old.id in page.supersedes:
            fields |= {"status": Status.RETIRED, "superseded_by": page.id}
        if old.id in page.related:
            fields["related"] = _union(old.related, [page.id])
        if any(getattr(old, name) != value for name, value in fields.items()):
            marked.append(_changed(old, **fields))
    return tuple(marked)


def _merge(new: Lesson, old: Lesson, has_summary: Callable[[str], bool]) -> Lesson:
    """`old` with the new runs as further evidence. Its title, claim and body stay as they are."""
    known = {entry.run for entry in old.evidence}
    evidence = old.evidence + tuple(entry for entry in new.evidence if entry.run not in known)
    merged = _graded(_changed(old, evidence=evidence, effect=_pooled(new, old)))
    merged = _changed(merged, last_verified=max(old.last_verified, new.last_verified))
    first, second = proven_effect(old), proven_effect(new)
    outside_noise = first and second and sign(first) == sign(second) != 0
    if old.status is Status.CANDIDATE and outside_noise and all(has_summary(run) for run in known):
        return _changed(merged, status=Status.CONFIRMED, confidence=Confidence.VERIFIED)
    return merged


def _pooled(new: Lesson, old: Lesson) -> Effect | None:
    """Both measurements as one: the first run's values, all samples, an interval that covers both.

    The cover is wider than a pooled interval would be, and needs no assumption that the runs measured
    the same shapes on the same machine.
    """
    first, second = proven_effect(old), proven_effect(new)
    if not (first and second):
        return first or second or old.effect
    low, high = min(first.ci95[0], second.ci95[0]), max(first.ci95[1], second.ci95[1])
    return first.model_copy(update={"n": first.n + second.n, "ci95": (low, high)})


def _graded(lesson: Lesson) -> Lesson:
    """The confidence that the evidence gives, whatever the author wrote. What a compiler says of its code is
    no measurement."""
    if lesson.confidence is Confidence.VERIFIED:
        return lesson
    effect = proven_effect(lesson)
    measured = effect is not None and effect.metric not in OF_COMPILED_CODE
    return _changed(lesson, confidence=Confidence.MEASURED if measured else Confidence.EXPERIMENTAL)


def _superseded(new: Lesson, standing: Sequence[Lesson]) -> list[Lesson]:
    by_id = {old.id: old for old in standing}
    found = []
    for page_id in new.supersedes:
        if page_id not in by_id:
            raise LessonRefusedError(f"supersedes: there is no lesson {page_id}")
        old = by_id[page_id]
        if scope_of(new)._replace(dsl="") != scope_of(old)._replace(dsl=""):
            raise LessonRefusedError(
                f"supersedes: {page_id} has another arch, op, dtype or technique; both may stand"
            )
        newer = _lowest_version(new.dsl) > _lowest_version(old.dsl)
        stronger = bool(proven_effect(new)) and (
            not proven_effect(old) or len(new.evidence) > len(old.evidence)
        )
        if not (stronger or (newer and (proven_effect(new) or not proven_effect(old)))):
            raise LessonRefusedError(
                f"supersedes: {page_id} gives way only to stronger evidence, or to evidence from a newer DSL"
            )
        found.append(old)
    return found


def _lowest_version(specifier: str) -> Version:
    versions = [Version("0")]
    for part in SpecifierSet(specifier):
        if part.operator in (">=", ">", "==", "~="):
            try:
                versions.append(Version(part.version.removesuffix(".*")))
            except InvalidVersion:
                continue
    return max(versions)


def _says_the_same(old: Lesson) -> str:
    retired = f", which is retired in favour of {old.superseded_by}" if old.superseded_by else ""
    return f"{old.id} already says it{retired}; nothing new to store"


def _what_the_run_changed(new: Lesson, old: Lesson, merged: Lesson) -> str:
    runs = ", ".join(entry.run for entry in merged.evidence[len(old.evidence) :])
    if merged.status is Status.CONFIRMED and old.status is not Status.CONFIRMED:
        return f"{old.id} says the same; run {runs} is its second proof outside the noise and confirms it"
    if merged.status is Status.CANDIDATE and new.effect and sign(new.effect) == 0:
        return f"{old.id} says the same; run {runs} was added as evidence, inside the noise"
    return f"{old.id} says the same; run {runs} was added as evidence"


def _changed(lesson: Lesson, **fields: Any) -> Lesson:
    """A checked copy: unlike `model_copy` it validates."""
    return Lesson.model_validate({**lesson.model_dump(), **fields})


def _union(first: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *more)))
