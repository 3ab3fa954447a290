"""What a wiki page is: front matter as strict records, and the body below it.

A page is a Markdown file that opens with one YAML block. Reference pages explain
(primitives, techniques, hardware); lessons state one measured claim. Both share
`FrontMatter`; unknown keys are refused, so that a typing error cannot hide a fact.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=100)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]
Arch = Literal["any", "sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120a"]
KnobValue = bool | int | str


class PageType(StrEnum):
    """The kind of page; `FOLDER_OF` says where each lives."""

    DSL = "dsl"
    PRIMITIVE = "primitive"
    HARDWARE = "hardware"
    TECHNIQUE = "technique"
    PROFILING = "profiling"
    PATTERN = "pattern"
    PITFALL = "pitfall"
    KERNEL = "kernel"
    MIGRATION = "migration"
    LESSON = "lesson"


FOLDERS_OF: dict[PageType, tuple[str, ...]] = {
    PageType.DSL: ("dsl",),
    PageType.PRIMITIVE: ("primitives",),
    PageType.HARDWARE: ("blackwell", "hopper"),
    PageType.TECHNIQUE: ("techniques",),
    PageType.PROFILING: ("profiling",),
    PageType.PATTERN: ("patterns",),
    PageType.PITFALL: ("pitfalls",),
    PageType.KERNEL: ("kernels",),
    PageType.MIGRATION: ("migration",),
    PageType.LESSON: ("lessons",),
}


class Status(StrEnum):
    """How far a page may be believed. Retired pages are never returned by default."""

    CANDIDATE = "candidate"
    CONFIRMED = "confirmed"
    DISPUTED = "disputed"
    RETIRED = "retired"


class Confidence(StrEnum):
    """What a page's claims rest on, strongest first."""

    VERIFIED = "verified"
    MEASURED = "measured"
    SOURCE_REPORTED = "source-reported"
    INFERRED = "inferred"
    EXPERIMENTAL = "experimental"


class Record(BaseModel):
    """Base of all front matter records: unknown keys refused, values immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Trigger(Record):
    """Selects the page from a profile: `metric op value` holds."""

    metric: Line
    op: Literal["<", "<=", ">", ">=", "=="]
    value: float


class Knob(Record):
    """A suggestion that a tuner can act on: prefer values of `name` for which `name op value` holds.

    `when` restricts it to workloads, as an expression over axis names, e.g. `hidden_size >= 4096`.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    op: Literal["==", "!=", "<=", ">=", "in"]
    value: KnobValue | tuple[KnobValue, ...]
    when: Line | None = None

    @model_validator(mode="after")
    def _value_fits_op(self) -> Knob:
        if (self.op == "in") != isinstance(self.value, tuple):
            raise ValueError("value must be a list exactly when op is 'in'")
        return self


class Source(Record):
    """Where a reader can check a fact: a repository path at a tag, or a titled document."""

    title: Line
    repo: Line | None = None
    path: Line | None = None
    tag: Line | None = None
    url: Line | None = None

    @model_validator(mode="after")
    def _can_be_opened(self) -> Source:
        if not (self.repo and self.path) and not self.url:
            raise ValueError("a source needs repo and path, or url")
        return self


class Effect(Record):
    """A measured difference. `ci95` bounds the ratio after/before; `n` samples stand on each side."""

    metric: Line
    before: float
    after: float
    unit: Line
    ci95: tuple[float, float]
    n: Annotated[int, Field(ge=1)]
    baseline: Line


class Evidence(Record):
    """A run that proves a claim: its id, and the candidates compared (code hashes) or the claims measured.

    `claims` are ids of an experiment's measurements; a line of the page that names one repeats its figures.
    """

    run: Line
    candidates: tuple[Line, ...] = ()
    claims: tuple[Slug, ...] = ()


class FrontMatter(Record):
    """The part that every page shares."""

    id: Slug
    title: Line
    type: PageType
    arch: Annotated[tuple[Arch, ...], Field(min_length=1)]
    dtype: tuple[Line, ...] = ()
    op: Slug | None = None
    dsl: Line = ">=4.8"
    tags: tuple[Slug, ...] = ()
    aliases: tuple[Line, ...] = ()
    symptoms: tuple[Slug, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    knobs: tuple[Knob, ...] = ()
    status: Status = Status.CONFIRMED
    supersedes: tuple[Slug, ...] = ()
    superseded_by: Slug | None = None
    contradicts: tuple[Slug, ...] = ()
    related: tuple[Slug, ...] = ()
    valid_when: Line | None = None
    not_when: Line | None = None
    created: dt.date
    last_verified: dt.date


class ReferencePage(FrontMatter):
    """A page that explains: every claim rests on `sources` a reader can open, or on `evidence`."""

    type: Literal[
        PageType.DSL, PageType.PRIMITIVE, PageType.HARDWARE, PageType.TECHNIQUE,
        PageType.PROFILING, PageType.PATTERN, PageType.PITFALL, PageType.KERNEL, PageType.MIGRATION,
    ]  # fmt: skip
    confidence: Confidence
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    evidence: tuple[Evidence, ...] = ()
    api_symbols: tuple[Line, ...] = ()


class Lesson(FrontMatter):
    """One claim from a run or a person. Without an effect and evidence it stays a candidate."""

    type: Literal[PageType.LESSON] = PageType.LESSON
    kind: Literal["technique", "tuning", "api-trap", "failure", "hardware-fact"]
    technique: Slug
    claim: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=600)]
    effect: Effect | None = None
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.EXPERIMENTAL
    status: Status = Status.CANDIDATE

    @model_validator(mode="after")
    def _no_more_than_proven(self) -> Lesson:
        proven = self.effect is not None and bool(self.evidence)
        if not proven and self.status is Status.CONFIRMED:
            raise ValueError("status confirmed needs an effect and evidence")
        if not proven and self.confidence in (Confidence.VERIFIED, Confidence.MEASURED):
            raise ValueError(f"confidence {self.confidence} needs an effect and evidence")
        return self
