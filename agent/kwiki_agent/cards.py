"""Hits of a search, reduced to what a policy acts on."""

from __future__ import annotations

from kwiki_ingest.search.retrieve import Hit
from kwiki_kernels.task import Task

from kwiki_agent.contract import MAX_CARDS
from kwiki_agent.state import Card, KnobAdvice


def cards_to_use(hits: list[Hit], task: Task) -> list[Card]:
    """At most MAX_CARDS different pages; pages of another operator family are no help.

    Pages that advise only knobs which the task does not have, as after a kernel changed, come last.
    """
    cards: dict[str, Card] = {}
    for hit in sorted(hits, key=lambda hit: _is_stale(hit, task)):
        if hit.op in (None, "any", task.definition.op_type):
            cards.setdefault(hit.page_id, _card(hit))
    return list(cards.values())[:MAX_CARDS]


def _is_stale(hit: Hit, task: Task) -> bool:
    known = task.knob_space.knobs if task.knob_space else {}
    return bool(hit.knobs) and not any(knob.name in known for knob in hit.knobs)


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
