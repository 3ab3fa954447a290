"""What a timeline shows of a traced launch: lanes, a window worth a closer look, and their picture.

A kernel can hold a million ranges. So nothing is drawn range by range: each lane is painted at the picture's
own resolution, and a column takes its colour from how much of it each range covers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from kwiki_kernels.profile.iket import Interval, Launch, Span, Warp, own_spans, roles, union

Colour = tuple[float, float, float]
"""Red, green, blue, 0..1."""
TICK_NS = 32.0
MOST_LANES = 16
"""More cannot be read."""
LEGIBLE = 150
"""A lane with more ranges than this needs a closer look beside the whole."""
CLOSE = 60
"""Ranges of the fullest lane in that look."""


class Lane(NamedTuple):
    """One warp's ranges."""

    warp: Warp
    role: str
    spans: tuple[Span, ...]


class RangeKind(NamedTuple):
    """All ranges of one name."""

    name: str
    role: str
    """Of the warps that spend most time in it."""
    waits: bool
    mean_ns: float
    total_ns: float


def lanes_of(launch: Launch) -> tuple[Lane, ...]:
    """The warps by CTA and role: whole CTAs while there is room, and of a large one some of each role."""
    spans_of, role_of = own_spans(launch), roles(launch)
    by_cta: dict[tuple[int, int, int], list[Warp]] = defaultdict(list)
    for warp in sorted(role_of, key=lambda warp: (warp.cta, role_of[warp], warp.warp)):
        by_cta[warp.cta].append(warp)
    first, *others = by_cta.values()
    shown = _some_of_each(first, role_of)
    for warps in others:
        if len(shown) + len(warps) > MOST_LANES:
            break
        shown += warps
    return tuple(Lane(warp, role_of[warp], tuple(spans_of[warp])) for warp in shown)


def kinds_of(lanes: tuple[Lane, ...]) -> tuple[RangeKind, ...]:
    """The ranges' names in the order of painting: the longest lies lowest, waiting on top."""
    lengths: dict[str, list[float]] = defaultdict(list)
    by_role: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    waits = {}
    for lane in lanes:
        for span in lane.spans:
            lengths[span.name].append(span.end_ns - span.start_ns)
            by_role[span.name][lane.role] += span.end_ns - span.start_ns
            waits[span.name] = span.waits
    kinds = [
        RangeKind(
            name, max(by_role[name], key=by_role[name].__getitem__), waits[name], sum(of) / len(of), sum(of)
        )
        for name, of in lengths.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: (kind.waits, -kind.mean_ns)))


def whole(lanes: tuple[Lane, ...]) -> Interval:
    """From the first range's start to the last one's end, ns; at least a tick of the clock."""
    spans = [span for lane in lanes for span in lane.spans]
    begin, end = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    return begin, max(end, begin + TICK_NS)


def closer_look(lanes: tuple[Lane, ...]) -> Interval | None:
    """A window in which single ranges can be told apart; None where the whole shows them.

    It lies about the end of a long working range, a tile say, that is nearest to the middle of the launch:
    there a role's steady state and its change from one tile to the next are both to be seen.
    """
    begin, end = whole(lanes)
    fullest = max(len(lane.spans) for lane in lanes)
    if fullest <= LEGIBLE:
        return None
    length, middle = (end - begin) * CLOSE / fullest, (begin + end) / 2
    ends = [
        span.end_ns
        for lane in lanes
        for span in lane.spans
        if not span.waits and span.end_ns - span.start_ns >= length / 2
    ]
    start = min(ends, key=lambda at: abs(at - middle), default=middle) - length / 2
    start = max(begin, min(start, end - length))
    return start, start + length


def paint(
    lanes: tuple[Lane, ...], colours: Mapping[str, Colour], window: Interval, columns: int
) -> npt.NDArray[np.float32]:
    """The lanes as an image.

    Args:
        colours: range name to colour, in the order of painting.
        window: ns; each of the `columns` is an equal part of it.

    Returns:
        [lanes, columns, 4], RGBA 0..1; transparent where no range lies.
    """
    edges = np.linspace(*window, columns + 1)
    image = np.zeros((len(lanes), columns, 4), dtype=np.float32)
    for row, lane in zip(image, lanes, strict=True):
        intervals: dict[str, list[Interval]] = defaultdict(list)
        for span in lane.spans:
            if span.start_ns < window[1] and span.end_ns > window[0]:
                intervals[span.name].append((span.start_ns, span.end_ns))
        for name, colour in colours.items():
            if name in intervals:
                _lay_over(row, colour, _coverage(union(intervals[name]), edges))
    return image


def _some_of_each(warps: list[Warp], role_of: Mapping[Warp, str]) -> list[Warp]:
    """At most so many of each role that all roles have room."""
    by_role: dict[str, list[Warp]] = defaultdict(list)
    for warp in warps:
        by_role[role_of[warp]].append(warp)
    each = max(map(len, by_role.values()))
    while each > 1 and sum(min(each, len(of)) for of in by_role.values()) > MOST_LANES:
        each -= 1
    return [warp for of in by_role.values() for warp in of[:each]]


def _coverage(intervals: list[Interval], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How much of each column disjoint, ordered intervals cover, 0..1."""
    starts, ends = np.asarray(intervals).T
    before = np.concatenate(([0.0], np.cumsum(ends - starts)))
    at = np.stack((starts, ends), axis=1).ravel()  # where the covered time begins and ceases to grow
    covered = np.interp(edges, at, np.stack((before[:-1], before[1:]), axis=1).ravel())
    share: npt.NDArray[np.float64] = np.diff(covered) / np.diff(edges)
    return share


def _lay_over(row: npt.NDArray[np.float32], colour: Colour, opacity: npt.NDArray[np.float64]) -> None:
    """Put a colour over what a row [columns, 4] shows, as opaque in each column as given."""
    below = row[:, 3] * (1 - opacity)
    alpha = opacity + below
    safe = np.maximum(alpha, 1e-9)
    for channel in range(3):
        row[:, channel] = (colour[channel] * opacity + row[:, channel] * below) / safe
    row[:, 3] = alpha
