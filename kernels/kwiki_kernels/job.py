"""The unit of work of the judge: a job carries everything that judging needs, as text.

A job is written as one JSON file, so that a GPU machine without the wiki, the agent or a
network can process it (`python -m kwiki_kernels.worker DIR`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, model_validator

from kwiki_kernels.evaluation import Knobs, Order, Record
from kwiki_kernels.isolation import Level

LEAST_TURNS = 4


class Rule(Record):
    """Knobs for the workloads whose axes are all at most `axes`; the first matching rule wins."""

    axes: dict[str, int]
    knobs: Knobs


class Candidate(Record):
    """A kernel to judge: its source and the knobs it is built with.

    `rules` makes it shape-specialised: a workload takes the knobs of the first rule that covers
    its axes, else `knobs`.
    """

    id: str
    parent: str | None = None
    intent: str = ""
    """What it tries, apart from how."""
    direction: str = ""
    """The idea that it is one draft of; a draft that fails does not fail the idea."""
    policy: str = ""
    cards: tuple[str, ...] = ()
    """Ids of the wiki pages that led to it."""
    source: str
    """Text of the kernel module."""
    knobs: Knobs = {}
    rules: tuple[Rule, ...] = ()

    @property
    def code_hash(self) -> str:
        """sha256 over source, knobs and rules: the same hash is the same experiment."""
        identity = {
            "source": self.source,
            "knobs": self.knobs,
            "rules": [rule.model_dump() for rule in self.rules],
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def knobs_for(self, axes: dict[str, int]) -> Knobs:
        """The knobs this candidate uses on a workload with these axis values."""
        for rule in self.rules:
            if all(axes[name] <= bound for name, bound in rule.axes.items()):
                return rule.knobs
        return self.knobs


class Protocol(Record):
    """How to time and how long to wait. The defaults are the published 3/50/3 protocol."""

    warmup: Annotated[int, Field(ge=0)] = 3
    iterations: Annotated[int, Field(ge=1)] = 50
    rounds: Annotated[int, Field(ge=1)] = 3
    order: Order = "sequential"
    """`sequential`: one candidate after the other, its builds beside another's timing. `interleaved`:
    all take turns round by round, A B C C B A, so that drift of the GPU falls on all alike."""
    span: bool = False
    """Also time the contest's span by CUPTI, from the first kernel's start to the last one's end."""
    cold_l2: bool = True
    build_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    judge_timeout_s: Annotated[float, Field(gt=0)] = 300.0

    def interleaved(self) -> Protocol:
        """This protocol for a comparison: an even number of rounds, at least four, taken in turns."""
        return self.model_copy(
            update={"order": "interleaved", "rounds": max(LEAST_TURNS, self.rounds + self.rounds % 2)}
        )


class Defences(Record):
    """What stands between a candidate and a verdict it has not earned, beside the checks on values."""

    audit: bool = True
    """Refuse a candidate whose text breaks a rule of `audit.py`; baselines are never asked."""
    kernel_names: bool = True
    """Also refuse one that launches a kernel that it did not write."""
    each_call: bool = True
    """Poison the outputs before each timed call, not only before a check."""
    isolation: tuple[Level, ...] | None = None
    """Levels of `isolation.py`; None: all without a GPU, with one those that CUDA is known to work under."""


class Job(Record):
    """A batch of candidates for one task on one architecture, self-contained."""

    format: Literal[1] = 1
    id: str
    task_files: dict[str, str]
    """Relative path to text: the task folder without kernels."""
    workload_uuids: Annotated[tuple[str, ...], Field(min_length=1)]
    arch: str
    candidates: tuple[Candidate, ...]
    baselines: tuple[str, ...] = ()
    """The task's baselines to measure too, by the names they get: `baseline`, `baseline:<name>`. One that the
    task does not have is left out."""
    stage: Literal["build", "check", "judge"] = "judge"
    """`build` compiles and reports, on any machine; `check` also runs modules with a `run` on the CPU,
    Triton interpreted; `judge` checks and times where there is a GPU."""
    held_out: Annotated[int, Field(ge=0)] = 0
    """Workloads of other sizes to check as well, drawn from the seed; see `held_out.py`."""
    seed: int
    protocol: Protocol = Protocol()
    defences: Defences = Defences()
    kernel_wiki_version: str

    @model_validator(mode="after")
    def _told_apart(self) -> Job:
        ids = Counter([*self.baselines, *(candidate.id for candidate in self.candidates)])
        if twice := [name for name, times in ids.items() if times > 1]:
            raise ValueError(f"'{twice[0]}' names two kernels, whose verdicts could not be told apart")
        return self
