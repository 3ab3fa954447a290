"""What a run was asked to do. Written once into `contract.json`; nothing can change it after."""

from __future__ import annotations

from typing import Annotated, Literal

from kwiki_kernels.evaluation import Knobs, Record
from kwiki_kernels.job import Protocol
from pydantic import Field

PolicyName = Literal["tuner", "claude", "external"]
"""Who proposes candidates."""

MAX_CARDS = 3
"""Cards per retrieval: two or three focused skills help, more dilute (knowledge base, "Reading")."""


class AgentError(Exception):
    """Something the user must change; the message is one sentence that names it and the next step."""


class RunStoppedError(Exception):
    """The run cannot go on now; nothing recorded is lost, and the message says what to do before resuming."""


class Price(Record):
    """What a model costs, US dollars per million tokens, as stated on `date`."""

    input: Annotated[float, Field(ge=0)]
    cache_write: Annotated[float, Field(ge=0)]
    cache_read: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    date: str
    source: str


class Model(Record):
    """A model by its name at the server, how hard it shall think, and what it costs."""

    name: str
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    """None: the server's default."""
    price: Price | None = None
    """None: unknown, then no cost is stated anywhere."""


class Contract(Record):
    """Objective, constraints and budget of one run.

    The objective is the geometric mean over `workloads` of baseline time over candidate time.
    """

    run_id: str
    task_dir: str
    task_name: str
    arch: str
    workloads: tuple[str, ...]
    representatives: tuple[str, ...] = ()
    """Workloads that a candidate must do well on before the search times it on all; none: no such step."""
    policy: PolicyName = "tuner"
    model: Model | None = None
    """Who writes kernels, for policies that ask a model."""
    reviewer: Model | None = None
    """Who may veto promotions; None: the rules alone decide."""
    max_candidates: Annotated[int, Field(ge=1)] = 24
    """Candidates of the search; the ablation and the dispatch that follow are not counted."""
    batch: Annotated[int, Field(ge=1)] = 8
    max_judge_s: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds spent building and judging, waiting for a spool not counted."""
    max_gpu_s: Annotated[float, Field(gt=0)] | None = None
    """Of those, seconds that candidates were checked and timed on a GPU."""
    max_wall_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that the loop was at work, over all resumes; waiting for a spool or a person not counted."""
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens to and from models, cached ones counted in full."""
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    language: Literal["any", "CuTe-DSL", "Triton"] = "any"
    allowed_imports: tuple[str, ...] = ()
    """Packages that kernels may import; none named: all that the audit lets pass."""
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
    forked_from: str | None = None
    """`RUN/CANDIDATE` where this run began in the middle of another."""
