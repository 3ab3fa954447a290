"""What a fault is, and how one is run on the GPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_kernels.frame import CASES, RELATIVE_L2, module, page_code

HANGS, WRONG, RIGHT = "hangs", "wrong", "right"
"""Outcomes beside a failure, which is written as part of its message."""
LUCK = "right or wrong"
"""Expected of races and of values never set: most runs go unpunished."""
WRONG_EXIT = 3
LAUNCHED, ENDED = "launched", "ended"

Numbers = tuple[torch.Tensor, torch.Tensor]
Kernel = Callable[[Any, bool], Numbers]
"""From a stream and whether the mistake is in it to what the kernel computed and what it should have."""


@dataclass(frozen=True)
class Fault:
    """A mistake, and what comes of it on a GPU."""

    expected: str
    """`hangs`, `wrong`, `right` (nobody notices), `right or wrong`, or a part of the failure's message."""
    run: Kernel
    honest: str
    """What runs the kernel without the mistake: the page, or the fault itself."""
    code: Callable[[], str] | None = None
    """The page's code with the mistake, of those that edit a page."""


FAULTS: dict[str, Fault] = {}


def fault(expected: str) -> Callable[[Kernel], Kernel]:
    """The function is a fault of its own name."""

    def add(function: Kernel) -> Kernel:
        name = function.__name__.replace("_", "-")
        FAULTS[name] = Fault(expected, function, name)
        return function

    return add


def edited_page(
    name: str,
    page: str,
    old: str,
    new: str,
    expected: str,
    driver: Callable[[ModuleType, Any], Numbers] | None = None,
    count: int = 1,
    also: tuple[tuple[str, str], ...] = (),
) -> None:
    """A fault made by replacing the first `count` of `old` in the page's code by `new` (-1: all of them).

    So are the pairs of `also`. It is run as the page's own kernel is, or by `driver` where the mistake needs
    other data to show.
    """

    function, fence = CASES[page] if driver is None else (driver, 0)

    def edited() -> str:
        code = page_code(page, fence)
        for before, after in ((old, new), *also):
            assert before in code, f"the page {page} no longer holds: {before}"
            code = code.replace(before, after, count)
        return code

    def run(stream: Any, broken: bool) -> Numbers:
        kernels = module(edited() if broken else page_code(page, fence))
        if broken:
            function(_silent(kernels), stream)  # loads torch's own kernels, which nothing does during a hang
        return function(kernels, stream)

    FAULTS[name] = Fault(expected, run, page if driver is None else name, edited)


def _silent(page: ModuleType) -> ModuleType:
    """The page's constants, and functions that do nothing."""
    silent = ModuleType(page.__name__)
    vars(silent).update({k: (lambda *_: None) if callable(v) else v for k, v in vars(page).items()})
    return silent


def run(name: str, broken: bool) -> None:
    """Run one fault twice, or its kernel without the mistake. Exits with `WRONG_EXIT` if numbers are wrong.

    Prints `LAUNCHED` when a call has returned, `ENDED` when its kernel has ended, and last a JSON object:
    the relative L2 errors, the shares of wrong elements, that of NaN, and whether both runs agree.
    """
    from cutlass.torch import current_stream

    results = []
    for _ in range(2):
        got, want = FAULTS[name].run(current_stream(), broken)
        print(LAUNCHED, flush=True)
        torch.cuda.synchronize()
        print(ENDED, flush=True)
        results.append(got.double())
    want = want.double()
    first = results[0]
    scale = want.square().mean().sqrt()
    errors = [((r.nan_to_num(0, 0, 0) - want).norm() / want.norm()).item() for r in results]
    wrong = [(~((r - want).abs() <= 3 * RELATIVE_L2 * scale)).double().mean().item() for r in results]
    summary = {
        "errors": errors,
        "wrong": wrong,
        "nan": first.isnan().double().mean().item(),
        "same": bool(((first == results[1]) | (first.isnan() & results[1].isnan())).all()),
    }
    print(json.dumps(summary), flush=True)
    if not all(e < RELATIVE_L2 for e in errors) or summary["nan"]:
        sys.exit(WRONG_EXIT)
