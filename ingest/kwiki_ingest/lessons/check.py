"""What a lesson must satisfy by itself, before it is weighed against the standing ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kwiki_ingest.errors import PageError
from kwiki_ingest.lessons.errors import LessonRefusedError
from kwiki_ingest.lessons.evidence import check_evidence
from kwiki_ingest.lessons.scan import scan
from kwiki_ingest.lessons.scope import proven_effect, sign
from kwiki_ingest.load import SourceText, hash_of, parse_page, render_page
from kwiki_ingest.page import Confidence, Effect, Lesson, Status
from kwiki_ingest.vocabulary import load_vocabulary
from kwiki_ingest.wiki import Wiki

LARGEST_BODY_BYTES = 32 * 1024
_ROUNDING = 0.02
"""Slack between after/before and its interval: both are medians, rounded by whoever wrote them."""


def check(wiki: Wiki, lesson: Lesson, body: str, files: Mapping[str, bytes]) -> None:
    """Raise LessonRefusedError, with a sentence that names the field, for the first broken rule."""
    _check_size(body)
    if finding := scan({**lesson.model_dump(mode="json"), "body": body}):
        raise LessonRefusedError(str(finding))
    _check_claims_no_more_than_the_gate_gives(lesson)
    if lesson.effect:
        _check_effect(lesson.effect)
    _check_form(wiki, lesson, body)
    check_evidence(wiki, lesson.evidence, files)


def _check_size(body: str) -> None:
    size = len(body.encode(errors="surrogatepass"))
    if size > LARGEST_BODY_BYTES:
        raise LessonRefusedError(
            f"body: {size:,} bytes are too many; a lesson is one small page of at most {LARGEST_BODY_BYTES:,}"
        )


def _check_claims_no_more_than_the_gate_gives(lesson: Lesson) -> None:
    if lesson.status is not Status.CANDIDATE:
        raise LessonRefusedError(
            f"status: a lesson comes in as candidate, not {lesson.status}; "
            "a second run that measures the same confirms it"
        )
    for field in ("contradicts", "superseded_by"):
        if getattr(lesson, field):
            raise LessonRefusedError(
                f"{field}: the gate sets this field when it compares lessons; leave it out"
            )
    if lesson.confidence is Confidence.VERIFIED:
        raise LessonRefusedError(
            "confidence: verified is given by the gate, after a second run; leave it out"
        )
    if proven_effect(lesson) is None and lesson.confidence is not Confidence.EXPERIMENTAL:
        raise LessonRefusedError(
            f"confidence: {lesson.confidence} needs an effect and evidence; without them it is experimental"
        )


def _check_effect(effect: Effect) -> None:
    low, high = effect.ci95
    if not all(math.isfinite(x) for x in (effect.before, effect.after, low, high)):
        raise LessonRefusedError("effect: every number must be finite")
    if effect.before <= 0 or effect.after < 0:
        raise LessonRefusedError(
            "effect: before must be above 0, and after not below, to form the ratio after/before"
        )
    if not 0 <= low <= high:
        raise LessonRefusedError(
            f"effect.ci95: [{low:g}, {high:g}] is no interval of a ratio; give low, then high"
        )
    ratio = effect.after / effect.before
    if not low * (1 - _ROUNDING) <= ratio <= high * (1 + _ROUNDING) or (ratio - 1) * sign(effect) < 0:
        raise LessonRefusedError(
            f"effect.ci95: [{low:g}, {high:g}] does not hold after/before = {ratio:.4g}; "
            "it bounds that ratio, not a difference"
        )


def _check_form(wiki: Wiki, lesson: Lesson, body: str) -> None:
    """The page as it will be written is one that the loader accepts and reads back unchanged."""
    try:
        text = render_page(lesson, body or lesson.claim)
        read_back = parse_page(
            SourceText(f"lessons/{lesson.id}.md", text, hash_of(text)), load_vocabulary(wiki)
        )
    except UnicodeEncodeError:
        raise LessonRefusedError("body: the text is not valid Unicode; save it as UTF-8") from None
    except PageError as error:
        raise LessonRefusedError(error.reason) from error
    if read_back.front != lesson:
        changed = next(f for f in Lesson.model_fields if getattr(read_back.front, f) != getattr(lesson, f))
        raise LessonRefusedError(f"{changed}: the value does not survive being written as YAML; simplify it")
