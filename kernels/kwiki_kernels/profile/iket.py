"""In-kernel event tracing: how to ask `run-iket` for a trace, and where each warp role's time goes.

The format is the trace JSON of nvidia-cutlass-dsl 4.8. Its writer calls it experimental.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kwiki_kernels.errors import ProfileError
from kwiki_kernels.evaluation import Record

WAITING = ("wait", "acquire", "barrier", "sync")
"""A range whose name has one of these words is time spent waiting."""

Interval = tuple[float, float]


class Warp(NamedTuple):
    """Where a range was recorded."""

    cta: tuple[int, int, int]
    warp: int


class Span(NamedTuple):
    """One range of one warp; ns from the start of the launch's first range, in ticks of 32 ns."""

    name: str
    where: Warp
    start_ns: float
    end_ns: float

    @property
    def waits(self) -> bool:
        """Whether its name says so."""
        return any(word in self.name.lower().split("_") for word in WAITING)


class Launch(NamedTuple):
    """One launch of an instrumented kernel."""

    kernel: str
    spans: tuple[Span, ...]

    @property
    def duration_ns(self) -> float:
        """From the first range's start to the last one's end."""
        return max(span.end_ns for span in self.spans) - min(span.start_ns for span in self.spans)


class RoleTime(Record):
    """Where the warps of one role spend their ranges, summed over warps."""

    role: str
    warps: int
    busy_us: float
    """In ranges, but not in waiting ones."""
    waiting_us: float

    @property
    def wait_share(self) -> float:
        """Waiting over all time in ranges, 0..1."""
        total = self.busy_us + self.waiting_us
        return self.waiting_us / total if total else 0.0


class Pipeline(Record):
    """How the roles of a warp-specialised kernel share its time."""

    kernel: str
    duration_us: float
    roles: tuple[RoleTime, ...]
    """The busiest first."""
    overlap: dict[str, float]
    """`a+b` to the share of the less busy role's busy time in which both are busy, in the same CTA, 0..1."""


def command(target: Sequence[str], folder: Path, cluster: tuple[int, int, int] = (0, 0, 0)) -> list[str]:
    """The command line that traces one cluster of every instrumented kernel that `target` launches.

    Args:
        cluster: in units of clusters; run-iket takes the first one of a grid that does not reach so far.
    """
    return [
        "run-iket", "--output-dir", str(folder), "--clobber",
        "profile", "--enabled-cluster", ",".join(map(str, cluster)), "--postprocess", "all", "--", *target,
    ]  # fmt: skip


def read_trace(text: str) -> tuple[Launch, ...]:
    """The launches of a trace that hold ranges, those of CUDA graphs after the others.

    Raises:
        ProfileError: it is no such trace, or nothing in it is instrumented.
    """
    try:
        trace = json.loads(text)
        names, places = trace["stringTable"], [_warp(place) for place in trace["locationTable"]]
        recorded = itertools.chain(trace["launches"], *trace.get("graphLaunches", {}).values())
        launches = tuple(
            Launch(launch["kernelName"], tuple(_spans(launch["ranges"], names, places)))
            for launch in recorded
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ProfileError(f"this is not a trace that run-iket writes: {error!r}") from error
    if not (traced := tuple(launch for launch in launches if launch.spans)):
        raise ProfileError("the trace holds no ranges: put iket ranges into the kernel, one set per role")
    return traced


def longest(launches: Sequence[Launch]) -> Launch:
    """The last launch of the kernel that takes longest: what an edit should be about."""
    return max({launch.kernel: launch for launch in launches}.values(), key=lambda launch: launch.duration_ns)


def pipeline(launch: Launch) -> Pipeline:
    """Time per role, waiting and overlap of one launch."""
    by_warp = own_spans(launch)
    busy: dict[str, dict[Warp, list[Interval]]] = defaultdict(dict)
    waiting_ns: dict[str, float] = defaultdict(float)
    for warp, role in roles(launch).items():
        waits = union((s.start_ns, s.end_ns) for s in by_warp[warp] if s.waits)
        ranges = union((s.start_ns, s.end_ns) for s in by_warp[warp])
        busy[role][warp] = _minus(ranges, waits)
        waiting_ns[role] += _length(waits)
    times = [
        RoleTime(
            role=role,
            warps=len(warps),
            busy_us=sum(map(_length, warps.values())) / 1e3,
            waiting_us=waiting_ns[role] / 1e3,
        )
        for role, warps in busy.items()
    ]
    return Pipeline(
        kernel=launch.kernel,
        duration_us=launch.duration_ns / 1e3,
        roles=tuple(sorted(times, key=lambda time: -time.busy_us)),
        overlap={f"{a}+{b}": _overlap(busy[a], busy[b]) for a, b in itertools.combinations(sorted(busy), 2)},
    )


def roles(launch: Launch) -> dict[Warp, str]:
    """Warp to role: the part before the first underscore of the range that fills most of its time.

    Ranges that every warp has, and waiting ones, tell no roles apart and do not count where others exist.
    """
    found = {}
    for warp, spans in sorted(own_spans(launch).items()):
        filled: dict[str, float] = defaultdict(float)
        for span in [span for span in spans if not span.waits] or spans:
            filled[span.name] += span.end_ns - span.start_ns
        found[warp] = max(filled, key=filled.__getitem__).split("_", 1)[0]
    return found


def own_spans(launch: Launch) -> dict[Warp, list[Span]]:
    """Each warp's ranges, without those that every warp has (a lifetime, a prologue) where it has others."""
    every: dict[Warp, list[Span]] = defaultdict(list)
    for span in launch.spans:
        every[span.where].append(span)
    names = [{span.name for span in spans} for spans in every.values()]
    common = set.intersection(*names) if len(names) > 1 else set()
    return {
        warp: [s for s in spans if s.name not in common]
        if any(s.name not in common and not s.waits for s in spans)
        else spans
        for warp, spans in every.items()
    }


def _warp(place: dict[str, Any]) -> Warp:
    x, y, z = place["ctaId"]
    return Warp((x, y, z), place["warpId"])


def _spans(ranges: list[dict[str, Any]], names: list[str], places: list[Warp]) -> Iterable[Span]:
    # Time stamps are about 2^60: as floats they would be exact to 256 ns only.
    first = min((entry["startTs"] for entry in ranges), default=0)
    for entry in ranges:
        start, end = float(entry["startTs"] - first), float(entry["endTs"] - first)
        for place in dict.fromkeys(entry["warpLocIdxs"]):  # one each for start and end, mostly the same
            yield Span(names[entry["rangeNameIdx"]], places[place], start, end)


def _overlap(a: dict[Warp, list[Interval]], b: dict[Warp, list[Interval]]) -> float:
    both = least = 0.0
    in_a, in_b = _by_cta(a), _by_cta(b)
    for cta in in_a.keys() | in_b.keys():
        busy_a, busy_b = union(in_a.get(cta, ())), union(in_b.get(cta, ()))
        both += _length(busy_a) - _length(_minus(busy_a, busy_b))
        least += min(_length(busy_a), _length(busy_b))
    return both / least if least else 0.0


def _by_cta(role: dict[Warp, list[Interval]]) -> dict[tuple[int, int, int], list[Interval]]:
    found: dict[tuple[int, int, int], list[Interval]] = defaultdict(list)
    for warp, intervals in role.items():
        found[warp.cta] += intervals
    return found


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points in time as disjoint intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _minus(intervals: list[Interval], removed: list[Interval]) -> list[Interval]:
    """What of `intervals` lies outside `removed`; both disjoint and in order. One pass over each."""
    left: list[Interval] = []
    hole = 0
    for start, end in intervals:
        at = start
        while hole < len(removed) and removed[hole][0] < end:
            hole_start, hole_end = removed[hole]
            if hole_start > at:
                left.append((at, hole_start))
            at = max(at, hole_end)
            if hole_end > end:
                break  # it may reach into the next interval
            hole += 1
        if at < end:
            left.append((at, end))
    return left


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
