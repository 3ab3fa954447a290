"""Hits of a search, reduced to what a policy acts on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kwiki_ingest.page import PageType
from kwiki_ingest.search.retrieve import Hit
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Knobs
from kwiki_kernels.knobs import holds
from kwiki_kernels.task import Task

from kwiki_agent.contract import MAX_CARDS
from kwiki_agent.state import Card, KnobAdvice

POOL = 8 * MAX_CARDS
"""How many hits to choose from: of a family that was tuned before, most lessons only confirm its defaults,
and the text alone does not tell them from one on just these shapes."""


def cards_to_use(hits: list[Hit], task: Task, *, workloads: Sequence[str], knobs: Knobs) -> list[Card]:
    """At most MAX_CARDS different pages; pages of another operator family are no help.

    Those that change nothing come last: lessons on other shapes than the `workloads`, pages that advise
    only knobs which the task does not have, as after a kernel changed, and lessons that advise what
    `knobs`, the point to start from, already has.
    """
    axes = [task.definition.axis_values(task.workload(uuid).axes) for uuid in workloads]
    known = task.knob_space.knobs if task.knob_space else {}
    cards: dict[str, Card] = {}
    for hit in sorted(hits, key=lambda hit: not _changes_something(hit, known, axes, knobs)):
        if hit.op in (None, "any", task.definition.op_type):
            cards.setdefault(hit.page_id, _card(hit))
    return list(cards.values())[:MAX_CARDS]


def _changes_something(
    hit: Hit, known: Mapping[str, object], axes: Sequence[Mapping[str, int]], knobs: Knobs
) -> bool:
    advice = [knob for knob in hit.knobs if knob.name in known]
    if hit.knobs and not advice:
        return False
    if hit.type is not PageType.LESSON:
        return True
    followed = all(knob.op == "==" and knobs.get(knob.name) == knob.value for knob in advice)
    return _in_scope(hit.valid_when, axes) and not (advice and followed)


def _in_scope(valid_when: str | None, axes: Sequence[Mapping[str, int]]) -> bool:
    """Whether a lesson was found on a shape of this run; a condition in words does not tell."""
    try:
        return valid_when is None or not axes or any(holds(valid_when, values) for values in axes)
    except TaskError:
        return True


def _card(hit: Hit) -> Card:
    return {
        "id": hit.page_id,
        "title": hit.title,
        "status": str(hit.status),
        "confidence": str(hit.confidence),
        "text": hit.claim or hit.text,
        "knobs": [_advice(knob.model_dump()) for knob in hit.knobs],
    }


def _advice(knob: dict[str, object]) -> KnobAdvice:
    value = knob["value"]
    return {**knob, "value": list(value) if isinstance(value, tuple) else value}  # type: ignore[typeddict-item]
