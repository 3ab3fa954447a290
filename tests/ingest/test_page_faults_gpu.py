"""Mistakes that the pages on pitfalls describe do on a GPU what the pages say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from tests.ingest.page_faults import FAULTS, Outcome, honest_runs, observe, server
from tests.ingest.page_faults.frame import HANGS, LUCK, RIGHT, WRONG
from tests.ingest.page_faults.outcome import HANGING

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[tuple[str, bool], Future[Outcome]]]:
    """Every fault, and every kernel without its fault, in a process of its own; they run side by side."""
    context = server()
    with ThreadPoolExecutor(HANGING) as few, ThreadPoolExecutor(os.cpu_count()) as many:
        pools = {True: few, False: many}
        yield {
            (name, broken): pools[broken and FAULTS[name].expected == HANGS].submit(
                observe, context, name, broken
            )
            for broken, names in ((True, list(FAULTS)), (False, honest_runs()))
            for name in names
        }


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_comes_out_as_the_pages_say(runs: dict[tuple[str, bool], Future[Outcome]], name: str) -> None:
    seen, expected = runs[name, True].result(), FAULTS[name].expected
    if expected in (HANGS, WRONG, RIGHT):
        assert seen.outcome == expected, seen
    elif expected == LUCK:
        assert seen.outcome in (WRONG, RIGHT), seen
    else:
        assert seen.outcome == "fails", seen
        assert expected in seen.stdout + seen.stderr


@pytest.mark.parametrize("name", honest_runs())
def test_the_kernel_without_the_fault_computes_the_right_numbers(
    runs: dict[tuple[str, bool], Future[Outcome]], name: str
) -> None:
    seen = runs[name, False].result()
    assert seen.outcome == RIGHT, seen
