"""What a kernel must leave as it found it: the clock, the checks, the L2, and no thread at its side.

Stands in the candidate's own process, so it reaches as far as Python does: a kernel that writes to
this process's memory is past it.
"""

from __future__ import annotations

import _thread
import ctypes
import gc
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from kwiki_kernels import arena, check, contestant, cupti, driver, inputs, launched, timing, watch

WATCHED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch, ("equal", "sum", "empty", "zeros")),
    (torch.Tensor, ("copy_", "double", "isfinite", "view")),
    (torch.cuda, ("CUDAGraph", "Event", "current_stream", "graph", "set_stream", "synchronize")),
    (torch.cuda.Event, ("elapsed_time", "query", "record", "synchronize")),
    (torch.cuda.CUDAGraph, ("replay",)),
    (time, ("perf_counter_ns",)),
    (statistics, ("median",)),
)
"""What the judge measures and checks with, beside its own functions."""
OUR_MODULES = (arena, check, contestant, cupti, driver, inputs, launched, timing, watch)
FORBIDDEN = (
    (_thread, "start_new_thread", "started a thread"),
    (threading, "_start_new_thread", "started a thread"),
    (gc, "get_objects", "searched the memory"),
    (gc, "get_referrers", "searched the memory"),
)
CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6


class Integrity:
    """A snapshot, to be taken before the candidate's text is executed."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.l2_bytes = 0
        for module, name, what in FORBIDDEN:
            setattr(module, name, self._telling(getattr(module, name), what))
        self.found = dict(_watched())

    def see_context(self) -> None:
        """Note how the CUDA context looks before the candidate's first call."""
        self.l2_bytes = persisting_l2_bytes()

    def broken(self) -> str:
        """What the kernel did that no kernel may, as one sentence; empty where it did nothing."""
        for name, thing in _watched():
            if self.found.get(name) is not thing:
                return f"the kernel replaced {name}, with which it is measured or checked"
        if self.did:
            return f"the kernel {self.did[0]}"
        if persisting_l2_bytes() > self.l2_bytes:
            return "the kernel set L2 aside for persisting data, which outlives the flush"
        return ""

    def _telling(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        def tell(*arguments: Any, **named: Any) -> Any:
            self.did.append(what)
            return function(*arguments, **named)

        return tell


def persisting_l2_bytes() -> int:
    """The L2 that this process's CUDA context sets aside for persisting accesses; 0 without a context."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    size = ctypes.c_size_t()
    limit = ctypes.CDLL("libcuda.so.1").cuCtxGetLimit
    return 0 if limit(ctypes.byref(size), CU_LIMIT_PERSISTING_L2_CACHE_SIZE) else size.value


def _watched() -> Iterator[tuple[str, object]]:
    for owner, names in WATCHED:
        for name in names:
            yield f"{_path(owner)}.{name}", getattr(owner, name)
    for module in OUR_MODULES:
        for name, thing in vars(module).items():
            if isinstance(thing, FunctionType | type):
                yield f"{module.__name__}.{name}", thing
                if isinstance(thing, type):
                    yield from (
                        (f"{_path(thing)}.{method}", function)
                        for method, function in vars(thing).items()
                        if isinstance(function, FunctionType)
                    )


def _path(owner: Any) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else str(owner.__name__)
