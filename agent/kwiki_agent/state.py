"""What the graph carries from node to node. Small and plain: the data itself is in the run folder."""

from __future__ import annotations

from typing import Literal, TypedDict

from kwiki_kernels.evaluation import KnobValue

Phase = Literal["search", "ablate", "confirm"]
Stage = Literal["draft", "compile-error", "wrong-numbers", "too-slow"]


class KnobAdvice(TypedDict):
    """A card's suggestion: prefer values for which `name op value` holds, on workloads where `when`."""

    name: str
    op: str
    value: KnobValue | list[KnobValue]
    when: str | None


class Card(TypedDict):
    """A retrieved page, reduced to what a policy acts on."""

    id: str
    title: str
    status: str
    confidence: str
    text: str
    knobs: list[KnobAdvice]


class RunState(TypedDict, total=False):
    """The state of a run between nodes."""

    contract_sha256: str
    """Of the contract that the run began with."""
    phase: Phase
    round: int
    stage: Stage
    """Why the wiki is asked: first draft, compile error, wrong numbers, too slow."""
    cards: list[Card]
    known: int
    """Candidates proposed up to the last checkpoint; a propose step that was killed is repeated from here."""
    searched: int
    """Those of them that the search phase proposed."""
    batch: list[str]
    """Ids of the candidates of this round."""
    survivors: list[str]
    """Those of them that compiled."""
    job_id: str
    incumbent: str | None
    trouble: str
    """Why the policy proposed nothing this round, though it may in the next; empty where all went well."""
    stalled: int
    """Rounds in a row without a promotion."""
    metrics: dict[str, float]
    """The incumbent's profile digest, by the metric names of the vocabulary."""
    search_ended: str
    """Why the search ended, where ablation and confirmation follow it."""
    stop: str
    """Why the run ended; set by decide."""
