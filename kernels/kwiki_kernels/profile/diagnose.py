"""One diagnosis from any mix of figures: what bounds a kernel, why, and the one edit to try next.

The rules are the three tables below. A rule holds when all its conditions do; a figure that is absent
fulfils no condition. The first rule of `BOUNDS` that holds names the bound. A rule of `SETTLED` that holds
ends the search: the limit is reached, or the time is not to be believed. Else every rule of `FINDINGS` that
holds and bears on the bound is a symptom, and the first of them names the edit, else the bound's rule does.
A figure that cannot hold this kernel back, such as traffic far from the memory's limit, is none of these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from kwiki_kernels.evaluation import Record
from kwiki_kernels.profile import ncu
from kwiki_kernels.profile.iket import Pipeline

Op = Literal["<", "<=", ">", ">="]
Bound = Literal["memory-bound", "compute-bound", "launch-bound", "latency-bound", "unknown"]

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Evidence(Record):
    """A figure, and the threshold that made it one."""

    symptom: str
    metric: str
    value: float
    op: Op
    threshold: float


class Diagnosis(Record):
    """What to believe about a kernel's speed, and what to do about it."""

    bound: Bound
    evidence: tuple[Evidence, ...]
    """For the bound and every symptom; those behind the next edit come first."""
    roofline_share: float | None
    """Least possible time over measured time, 0..1; None where nothing was timed."""
    next_edit: str
    symptoms: tuple[str, ...]
    """Words of the wiki's vocabulary, the one behind the next edit first."""
    metrics: dict[str, float]
    """Every figure that was there, by the vocabulary's names: what pages' triggers are held against."""
    pipeline: Pipeline | None = None
    """Time per warp role; None where nothing was traced."""


class Condition(NamedTuple):
    """`metric op threshold`."""

    metric: str
    op: Op
    threshold: float

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether the figure is there and on that side."""
        value = metrics.get(self.metric)
        return value is not None and COMPARE[self.op](value, self.threshold)


class Rule(NamedTuple):
    """What it is when all conditions hold, and what to do then."""

    symptom: str
    when: tuple[Condition, ...]
    edit: str
    bears_on: tuple[Bound, ...] = ()
    """The bounds under which it can be what holds a kernel back; empty for all."""

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether every condition does."""
        return all(condition.holds(metrics) for condition in self.when)


IF = Condition
COMPUTE: Bound = "compute-bound"
MEMORY: Bound = "memory-bound"
LATENCY: Bound = "latency-bound"
LAUNCH: Bound = "launch-bound"

LESS_WORK = "Stop tuning instructions: move fewer bytes, by fusing a neighbour or a narrower format."
LESS_MATH = "Stop tuning: the math pipe is full. Only a narrower format or less arithmetic is faster."
LESS_POWER = (
    "Stop tuning: the tensor pipe is full and the power limit holds the clock down. "
    "Only a narrower format, less arithmetic, or a higher power limit is faster."
)
FILL_PIPE = "Close the gaps in the math pipe: overlap a tile's start and end with its neighbours' products."
CHEAPER_CODE = "Spend fewer instructions: vectorise, hoist, or use a cheaper form."
LESS_LAUNCH = "Shorten the fixed part: one launch, programmatic dependent launch, or a neighbour fused in."
MORE_IN_FLIGHT = "Put more bytes in flight: issue all loads of a tile before the first use, or add a stage."

BOUNDS = (
    Rule(COMPUTE, (IF("arithmetic_share", ">=", 0.7),), FILL_PIPE),
    Rule(COMPUTE, (IF(ncu.TENSOR_SHARE, ">=", 80),), FILL_PIPE),
    Rule(MEMORY, (IF("bandwidth_share", ">=", 0.8),), LESS_WORK),
    Rule(MEMORY, (IF(ncu.DRAM_SHARE, ">=", 80),), LESS_WORK),
    Rule(COMPUTE, (IF(ncu.SM_SHARE, ">=", 80),), CHEAPER_CODE),
    Rule(LAUNCH, (IF("latency_us", "<", 10), IF("roofline_share", "<", 0.5)), LESS_LAUNCH),
    Rule(LATENCY, (IF("roofline_share", "<", 0.8),), MORE_IN_FLIGHT),
    Rule(LATENCY, (IF(ncu.DRAM_SHARE, "<", 80), IF(ncu.SM_SHARE, "<", 80)), MORE_IN_FLIGHT),
)  # fmt: skip

SETTLED = (
    Rule("implausible-speed", (IF("roofline_share", ">", 1.05),),
         "Distrust the time: check that all the work is done inside the timed span."),
    Rule(COMPUTE,
         (IF(ncu.TENSOR_SHARE, ">=", 90), IF("clock_share", "<", 0.95), IF("power_capped", ">=", 1)),
         LESS_POWER),
    Rule(COMPUTE, (IF(ncu.TENSOR_SHARE, ">=", 90),), LESS_MATH),
    Rule(COMPUTE, (IF("arithmetic_share", ">=", 0.85),), LESS_MATH),
    Rule(MEMORY, (IF("bandwidth_share", ">=", 0.9),), LESS_WORK),
)  # fmt: skip

FINDINGS = (
    Rule("register-spills", (IF("spills", ">", 0),),
         "Shorten the lives of the registers that spill: smaller tile, less unrolling, or later loads."),
    Rule("register-spills", (IF("local_loads", ">", 0), IF("spills", "<", 1)),
         "Index the register array with constants (`range_constexpr`), so that it leaves local memory."),
    Rule("uncoalesced-loads", (IF(ncu.USED_BYTES_SHARE, "<", 60),),
         "Let neighbouring lanes read neighbouring bytes: change the thread layout of the tiled copy.",
         (MEMORY, LATENCY, LAUNCH)),
    Rule("narrow-loads", (IF("global_load_bits", "<", 128), IF("tensor_instructions", "<", 1)),
         "Load 128 bits a thread: raise the copy atom's width and assert the pointer's alignment.",
         (MEMORY, LATENCY, LAUNCH)),
    Rule("redundant-traffic", (IF("traffic_ratio", ">", 1.3), IF(ncu.DRAM_SHARE, ">=", 50)),
         "Read each byte once: keep the tile in registers or shared memory, or order CTAs for reuse in L2.",
         (MEMORY, LATENCY)),
    Rule("bank-conflicts", (IF("bank_conflict_share", ">", 0.2),),
         "Swizzle or pad the shared memory layout that the conflicting accesses use.", (COMPUTE, LATENCY)),
    Rule("too-few-ctas", (IF("ctas_launched_per_sm", "<", 1),),
         "Split the work over more CTAs: smaller tiles, or split the reduction."),
    Rule("tail-wave", (IF(ncu.WAVES, ">", 1), IF("wave_fill", "<", 0.85)),
         "Fill the last wave: choose a tile so that CTAs divide the SMs, or make the kernel persistent."),
    Rule("tma-wait-stalls", (IF("role_wait_share", ">", 0.3),),
         "Deepen the pipeline by one stage: even its busiest role waits.", (COMPUTE, LATENCY)),
    Rule("sync-overhead", (IF("role_overlap", "<", 0.5),),
         "Let the two busiest roles overlap: a second buffer between them.", (COMPUTE, LATENCY)),
    Rule("tensor-pipe-idle", (IF("tensor_instructions", ">", 0), IF(ncu.TENSOR_SHARE, "<", 50)),
         "Feed the tensor cores: more stages, a larger tile, or the epilogue beside the main loop.",
         (LATENCY,)),
    # In a warp-specialised kernel most warps wait at barriers by design; there the roles' times tell.
    Rule("barrier-stalls", (IF(ncu.stall("barrier"), ">", 1.0), IF("tensor_instructions", "<", 1)),
         "Wait less at CTA barriers: let warps finish alone, or join two reductions under one barrier.",
         (LATENCY,)),
    Rule("memory-latency-stalls", (IF(ncu.stall("long_scoreboard"), ">", 5),), MORE_IN_FLIGHT,
         (MEMORY, LATENCY)),
    Rule("low-occupancy", (IF("occupancy", "<", 0.5), IF("tensor_instructions", "<", 1)),
         "Make room for another CTA per SM: cut what the static report names as its limit.",
         (MEMORY, LATENCY)),
    Rule("low-bandwidth", (IF("bandwidth_share", "<", 0.9),), MORE_IN_FLIGHT, (MEMORY, LATENCY)),
    Rule(LAUNCH, (IF("latency_us", "<", 10),), LESS_LAUNCH, (MEMORY, LATENCY)),
)  # fmt: skip

NOTHING_STANDS_OUT = "Measure it on a GPU: the compiled code shows nothing to change."


def diagnose(metrics: Mapping[str, float], pipeline: Pipeline | None = None) -> Diagnosis:
    """The diagnosis of `metrics`, named as `metrics_of` does; pure, so that it can be made again anywhere.

    `pipeline` is kept beside it; what counts of it is among the metrics.
    """
    bound = next((rule for rule in BOUNDS if rule.holds(metrics)), None)
    name: Bound = bound.symptom if bound else "unknown"  # type: ignore[assignment]  # the record checks it
    reasons = [rule for rule in SETTLED if rule.holds(metrics)] or [
        rule for rule in FINDINGS if rule.holds(metrics) and _bears(rule, name)
    ]
    ordered = [*reasons, *([bound] if bound else [])]
    evidence: dict[tuple[str, str, str], Evidence] = {}  # of two thresholds for one thing the first counts
    for rule in ordered:
        for c in rule.when:
            evidence.setdefault(
                (rule.symptom, c.metric, c.op),
                Evidence(
                    symptom=rule.symptom, metric=c.metric, value=metrics[c.metric], op=c.op,
                    threshold=c.threshold,
                ),
            )  # fmt: skip
    return Diagnosis(
        bound=name,
        evidence=tuple(evidence.values()),
        roofline_share=metrics.get("roofline_share"),
        next_edit=ordered[0].edit if ordered else NOTHING_STANDS_OUT,
        symptoms=tuple(dict.fromkeys(rule.symptom for rule in ordered)),
        metrics=dict(metrics),
        pipeline=pipeline,
    )


def _bears(rule: Rule, bound: Bound) -> bool:
    return not rule.bears_on or bound == "unknown" or bound in rule.bears_on
