"""What the GPU ran, as CUPTI saw it through torch's profiler: names, and when each began and ended."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Span = tuple[float, float]
"""Start and end, us."""

MARK = "spin_kernel"
"""What `mark` runs, by the name that CUPTI gives it."""


def trace() -> torch.profiler.profile:
    """A context in which everything that runs on the GPU is noted."""
    # Without acc_events, torch warns that it would forget an earlier cycle; there is one only.
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)


def mark() -> None:
    """Launch what separates one call from the next in a trace."""
    torch.cuda._sleep(0)  # type: ignore[no-untyped-call]


def answers() -> bool:
    """Whether CUPTI reports what runs; a profiler around this process keeps it to itself."""
    with trace() as seen:
        for _ in range(2):
            mark()
        torch.cuda.synchronize()
    return len(between_marks(seen)) == 1


def kernel_names(call: Callable[[], Any]) -> list[str]:
    """The kernels that one call runs, in order; copies and fills by the copy engine are none."""
    with trace() as seen:
        call()
        torch.cuda.synchronize()
    return [name for name, _ in _events(seen) if not name.startswith(("Memcpy", "Memset"))]


def between_marks(seen: torch.profiler.profile) -> list[list[Span]]:
    """What ran between the first mark and the second, the third and the fourth, and so on."""
    groups: list[list[Span]] = [[]]
    for name, span in _events(seen):
        if MARK in name:
            groups.append([])
        else:
            groups[-1].append(span)
    return groups[1:-1:2]


def busy_us(spans: list[Span]) -> float:
    """Length of the union of spans that are sorted by their start."""
    busy = 0.0
    until = -math.inf
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy


def _events(seen: torch.profiler.profile) -> list[tuple[str, Span]]:
    events = seen.events()  # type: ignore[no-untyped-call]
    on_gpu = (event for event in events if event.device_type.name == "CUDA")
    return sorted(
        ((event.name, (event.time_range.start, event.time_range.end)) for event in on_gpu),
        key=lambda event: event[1],
    )
