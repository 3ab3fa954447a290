"""What a run was asked to do. Written once into `run.json`; nothing in the loop can change it."""

from __future__ import annotations

from typing import Annotated, Literal

from kwiki_kernels.evaluation import Knobs, Record
from kwiki_kernels.job import Protocol
from pydantic import Field

MAX_CARDS = 3
"""Cards per retrieval: two or three focused skills help, more dilute (knowledge base, "Reading")."""


class AgentError(Exception):
    """Something the user must change; the message is one sentence that names it and the next step."""


class Contract(Record):
    """Objective, constraints and budget of one run.

    The objective is the geometric mean over `workloads` of baseline time over candidate time.
    """

    run_id: str
    task_dir: str
    task_name: str
    arch: str
    workloads: tuple[str, ...]
    policy: Literal["tuner", "external"] = "tuner"
    max_candidates: Annotated[int, Field(ge=1)] = 24
    """Candidates of the search; the ablation and the dispatch that follow are not counted."""
    batch: Annotated[int, Field(ge=1)] = 8
    max_judge_s: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds spent building and judging, waiting for a spool not counted."""
    min_gain: Annotated[float, Field(ge=0)] = 0.005
    """Promotion needs a speed-up over the incumbent above 1 + min_gain, outside the noise."""
    fixed_knobs: Knobs = {}
    """Knobs the search may not vary."""
    use_cards: bool = True
    search_only: bool = False
    """Stop after the search, without ablation and confirmation: for experiments on the search itself."""
    stop_at: float | None = None
    """End the search with the round that reaches this score."""
    seed: int = 0
    protocol: Protocol = Protocol()
    executor: Literal["local", "spool"] = "local"
    spool_dir: str | None = None
    wiki_dir: str
    kernel_wiki_version: str
    created: str
