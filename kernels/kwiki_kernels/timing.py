"""Device time of a call with a cold L2, apart from what the host needs to issue it.

All iterations of a round sit in one CUDA graph: flush, event, call, event, and again. The host
plays no part between the events, so Python, argument checks and slow launches do not count; they
are measured on their own as `host_us`. What cannot be captured is timed by CUPTI, as the time in
which at least one of its kernels or copies ran, and only where CUPTI does not answer by events around
plain calls, which hold the host's gaps too; the verdict says which timer ran.

The flush reads a buffer of three times the L2 rather than writing one. Written lines would stay in
the L2 and their write-back would fall into the timed kernel.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch

from kwiki_kernels import cupti
from kwiki_kernels.job import Protocol
from kwiki_kernels.watch import Watch

Call = Callable[[], Any]
L2_MULTIPLE = 3
COPY_BYTES = 1 << 30
HEART_ELEMENTS = 1 << 24


class GraphTimer:
    """A round is one replay of a graph that holds every iteration of it."""

    name: Literal["cuda_graph"] = "cuda_graph"
    note = ""

    def __init__(self, call: Call, protocol: Protocol, watch: Watch | None = None) -> None:
        self.flush = flush = _flush(protocol)  # kept, since the graph reads and writes its buffers
        flush()
        self.returned = call()  # what a first call loads cannot be loaded during a capture
        self.events = [(_event(external=True), _event(external=True)) for _ in range(protocol.iterations)]
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            for _ in range(protocol.warmup):
                flush()
                call()
            for number, (start, end) in enumerate(self.events):
                if watch:
                    watch.before(self.returned)
                flush()
                start.record()
                self.returned = call()
                end.record()
                if watch:
                    watch.after(number, self.returned)

    def round(self) -> tuple[float, ...]:
        """Warm-up calls, then the device time of each iteration, us."""
        self.graph.replay()
        torch.cuda.synchronize()
        return _elapsed_us(self.events)


class CuptiTimer:
    """A round is a row of plain calls under CUPTI; what the GPU did between the marks of one is its time."""

    name: Literal["cupti"] = "cupti"

    def __init__(self, call: Call, protocol: Protocol, note: str, watch: Watch | None = None) -> None:
        self.call, self.protocol, self.watch = call, protocol, watch
        self.note = f"{note}: timed by CUPTI"
        self.flush = _flush(protocol)
        self.returned: Any = None

    def round(self) -> tuple[float, ...]:
        """Warm-up calls, then the time of each iteration in which the GPU was at work, us."""
        return tuple(cupti.busy_us(spans) for spans in self.spans())

    def spans(self) -> list[list[cupti.Span]]:
        """Start and end of what ran on the GPU for each iteration, us; of kernels, copies and fills."""
        for _ in range(self.protocol.warmup):
            self.flush()
            self.call()
        with cupti.trace() as seen:
            for number in range(self.protocol.iterations):
                if self.watch:
                    self.watch.before(self.returned)
                self.flush()
                torch.cuda.synchronize()
                cupti.mark()
                self.returned = self.call()
                torch.cuda.synchronize()  # work on other streams counts too
                cupti.mark()
                if self.watch:
                    self.watch.after(number, self.returned)
            torch.cuda.synchronize()
        return cupti.between_marks(seen)


class EventTimer:
    """A round is a row of plain calls between events, each waited for: host gaps and the wait count."""

    name: Literal["cuda_events"] = "cuda_events"

    def __init__(self, call: Call, protocol: Protocol, note: str, watch: Watch | None = None) -> None:
        self.call, self.protocol, self.watch = call, protocol, watch
        self.note = f"{note}: host gaps count, and the names of its kernels are not known"
        self.flush = _flush(protocol)
        self.returned: Any = None

    def round(self) -> tuple[float, ...]:
        """Warm-up calls, then the time between the events around each iteration, us."""
        events = [(_event(), _event()) for _ in range(self.protocol.iterations)]
        for _ in range(self.protocol.warmup):
            self.flush()
            self.call()
        for number, (start, end) in enumerate(events):
            if self.watch:
                self.watch.before(self.returned)
            self.flush()
            start.record()
            self.returned = self.call()
            torch.cuda.synchronize()  # work on other streams counts too
            end.record()
            if self.watch:
                self.watch.after(number, self.returned)
        torch.cuda.synchronize()
        return _elapsed_us(events)


Timer = GraphTimer | CuptiTimer | EventTimer


def make_timer(call: Call, protocol: Protocol, watch: Watch | None = None) -> Timer:
    """A graph timer, or another one where the call cannot be captured.

    `call` has run before, runs on torch's current stream and gives its outputs back.
    """
    stream = torch.cuda.current_stream()
    try:
        return GraphTimer(call, protocol, watch)
    except Exception as error:
        # A failed capture leaves its side stream current, and sometimes an error to be collected.
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize()
        cause = str(error.__context__ or error).strip().splitlines()[0]
        note = f"not capturable in a CUDA graph ({cause})"
        return (CuptiTimer if cupti.answers() else EventTimer)(call, protocol, note, watch)


def host_us(call: Call, protocol: Protocol) -> float:
    """Median time until an asynchronous call returns to the host, us."""
    torch.cuda.synchronize()
    samples = []
    for _ in range(protocol.iterations):
        start = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - start) / 1000)
    torch.cuda.synchronize()
    return statistics.median(samples)


def span_us(call: Call, protocol: Protocol) -> float | None:
    """Median time from the first kernel's start to the last one's end of a plain call, us.

    The contest's figure: gaps that the host leaves between kernels count, those before the first do not.
    None where CUPTI does not answer or the call runs nothing.
    """
    spans = CuptiTimer(call, protocol, "").spans() if cupti.answers() else []
    lengths = [max(end for _, end in each) - min(start for start, _ in each) for each in spans if each]
    return statistics.median(lengths) if lengths else None


def copy_gbps(protocol: Protocol) -> float:
    """Read plus write bandwidth of the best of three elementwise kernels on 1 GiB buffers, GB/s.

    Elementwise kernels, since a copy in a graph is a memcpy node, which is slower (threats.md).
    """
    source = torch.randint(0, 1 << 15, (COPY_BYTES // 2,), dtype=torch.int16, device="cuda")
    target = torch.empty_like(source)
    best = 0.0
    for dtype in (torch.bfloat16, torch.float32, torch.int64):
        x, y = source.view(dtype), target.view(dtype)
        timer = GraphTimer(partial(torch.neg, x, out=y), protocol)
        median_us = statistics.median(timer.round())
        best = max(best, 2 * COPY_BYTES / median_us / 1e3)
    return best


def timer_floor_us(protocol: Protocol) -> float:
    """Median reading of the timer for a kernel that waits for zero cycles, us."""
    return statistics.median(GraphTimer(partial(torch.cuda._sleep, 0), protocol).round())


class Heart:
    """A kernel whose result and time are known: what the GPU does with it tells whether it is well."""

    def __init__(self, protocol: Protocol) -> None:
        self.source = torch.arange(HEART_ELEMENTS, dtype=torch.int32, device="cuda")
        self.target = torch.empty_like(self.source)
        self.expected = -self.source
        few = protocol.model_copy(update={"warmup": 2, "iterations": 10})
        self.timer = GraphTimer(partial(torch.neg, self.source, out=self.target), few)

    def beat(self) -> tuple[bool, float]:
        """Whether the result was right, and the median time, us."""
        self.target.zero_()
        device_us = statistics.median(self.timer.round())
        return torch.equal(self.target, self.expected), device_us


def cuda_version() -> str:
    """The CUDA version that torch was built with."""
    return str(torch.version.cuda)


def _event(*, external: bool = False) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]


def _elapsed_us(events: list[tuple[torch.cuda.Event, torch.cuda.Event]]) -> tuple[float, ...]:
    return tuple(1000 * start.elapsed_time(end) for start, end in events)


def _flush(protocol: Protocol) -> Call:
    if not protocol.cold_l2:
        return lambda: None
    size = L2_MULTIPLE * torch.cuda.get_device_properties().L2_cache_size
    buffer = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
    total = torch.empty((), device="cuda")
    return lambda: torch.sum(buffer, dim=0, out=total)
