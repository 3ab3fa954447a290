"""When do two lessons speak of the same thing, and do they agree?

Pure functions over `Lesson`. Two lessons can be weighed against each other only inside one
scope (arch, op, dtype, technique, DSL range) and under the same conditions; there they share
a subject when they turn the same knobs, or, without knobs, when their claims say nearly the
same words. "A over B" and "B over A" share one too: each names the other's knobs as its baseline.
Words alone never prove agreement ("helps" and "hurts" differ by one word):
agreement is the sign of the measured effect, or the very same claim.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from enum import Enum
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from kwiki_ingest.page import Effect, Lesson

NEAR = 0.8
"""Token overlap from which two claims without knobs count as the same words."""


class Scope(NamedTuple):
    """Where a lesson holds. Lessons of different scopes never merge and never dispute."""

    arch: tuple[str, ...]
    op: str | None
    dtype: tuple[str, ...]
    technique: str
    dsl: str


class Relation(Enum):
    """How a new lesson stands to an old one."""

    OTHER = "says something else"
    SAME = "says the same and brings a new run"
    REPEAT = "says the same and brings nothing new"
    OPPOSITE = "measured the opposite"


def scope_of(lesson: Lesson) -> Scope:
    """The scope key; order and spelling of lists and of the version range do not count."""
    dtype = tuple(sorted(text.casefold() for text in lesson.dtype))
    return Scope(
        tuple(sorted(set(lesson.arch))), lesson.op, dtype, lesson.technique, str(SpecifierSet(lesson.dsl))
    )


def claim_hash(lesson: Lesson) -> str:
    """sha256 over scope, conditions, knobs and the claim without its spelling accidents."""
    identity = [
        scope_of(lesson), _conditions(lesson), _knobs(lesson), _fold(lesson.claim).rstrip(" .!。！"),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


def overlap(a: Lesson, b: Lesson) -> float:
    """Jaccard overlap of the words of title and claim, 0..1."""
    left, right = ({*_words(x.title), *_words(x.claim)} for x in (a, b))
    return len(left & right) / len(left | right)


def sign(effect: Effect) -> int:
    """-1 where the metric fell, 1 where it rose, 0 where the interval of after/before includes 1."""
    low, high = effect.ci95
    return -1 if high < 1 else 1 if low > 1 else 0


def proven_effect(lesson: Lesson) -> Effect | None:
    """The effect that a run stands behind; figures without a run prove nothing and dispute nobody."""
    return lesson.effect if lesson.evidence else None


def relation(new: Lesson, old: Lesson) -> Relation:
    """Weigh a new lesson against a standing one."""
    if _turned_round(new, old):
        return Relation.OPPOSITE
    same_claim = claim_hash(new) == claim_hash(old)
    if not (same_claim or _same_subject(new, old)):
        return Relation.OTHER
    new_effect, old_effect = proven_effect(new), proven_effect(old)
    if new_effect and old_effect:
        if not _comparable(new_effect, old_effect):
            return Relation.OTHER
        signs = {sign(new_effect), sign(old_effect)}
        if len(signs) == 2:
            return Relation.OPPOSITE if signs == {-1, 1} else Relation.OTHER
    elif not same_claim:
        return Relation.OTHER
    brings_run = {e.run for e in new.evidence} - {e.run for e in old.evidence}
    return Relation.SAME if brings_run else Relation.REPEAT


def _same_subject(a: Lesson, b: Lesson) -> bool:
    if not _same_place(a, b):
        return False
    if a.knobs or b.knobs:
        return _knobs(a) == _knobs(b)
    left, right = set(_words(a.claim)), set(_words(b.claim))
    # A number or an identifier makes the difference between "3 stages" and "4 stages".
    exact = [{word for word in words if re.search(r"[\d_.]", word)} for words in (left, right)]
    return exact[0] == exact[1] and len(left & right) / len(left | right) >= NEAR


def _turned_round(a: Lesson, b: Lesson) -> bool:
    """Whether `a` measured X against Y, `b` measured Y against X, and both found a gain (or a loss)."""
    first, second = proven_effect(a), proven_effect(b)
    if not (first and second and a.knobs and b.knobs and _same_place(a, b)):
        return False
    crossed = (_settings(a), _settings(b)) == (_baseline_settings(second), _baseline_settings(first))
    same_yardstick = _comparable(first, second.model_copy(update={"baseline": first.baseline}))
    return crossed and same_yardstick and sign(first) * sign(second) > 0


def _same_place(a: Lesson, b: Lesson) -> bool:
    return scope_of(a) == scope_of(b) and _conditions(a) == _conditions(b)


def _settings(lesson: Lesson) -> set[str]:
    return {_fold(f"{knob.name}={knob.value}") for knob in lesson.knobs if knob.op == "=="}


def _baseline_settings(effect: Effect) -> set[str]:
    """`stages=2, reload=false` as settings; other baselines give none that equal any knob's."""
    return {_fold(part).replace(" ", "") for part in effect.baseline.split(",")}


def _comparable(a: Effect, b: Effect) -> bool:
    """Only the same metric in the same unit against the same baseline can agree or disagree."""

    def key(effect: Effect) -> list[str]:
        return [_fold(text) for text in (effect.metric, effect.unit, effect.baseline)]

    return key(a) == key(b)


def _conditions(lesson: Lesson) -> list[str]:
    return [_fold(text or "") for text in (lesson.valid_when, lesson.not_when)]


def _knobs(lesson: Lesson) -> list[str]:
    return sorted(knob.model_dump_json() for knob in lesson.knobs)


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words(text: str) -> list[str]:
    """Identifiers whole (`cute.arch.fma`, `sm_90a`, `1.5`), words, and single CJK characters."""
    return re.findall(r"[a-z0-9_]+(?:[.\-][a-z0-9_]+)*|[^\W\d_a-z]", _fold(text))
