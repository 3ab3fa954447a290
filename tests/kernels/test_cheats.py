"""Every trick of the threat list is caught, and its honest twin is not. Real processes, no GPU.

Two layers by themselves: the audit of the text, and, with the audit off, what a kernel computes and
does. Triton kernels run interpreted.
"""

from __future__ import annotations

import importlib.util

import pytest
from kwiki_kernels.audit import audit_source
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Defences
from kwiki_kernels.judge import run_job

from tests.kernels.cheat_samples import CHEATS, TWINS, jobs, row_of

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
WRONG, REJECTED = Status.INCORRECT_NUMERICAL, Status.REJECTED

BY_TEXT = {
    1: "uses torch.cuda.Stream",
    2: "imports threading",
    3: "derives a class from torch.Tensor",
    4: "replaces torch.cuda.Event.elapsed_time",
    12: "catches an exception",
    13: "imports gc",
    14: "imports json",
    15: "uses cuda.bindings.driver.cuCtxSetLimit",
    18: "imports kwiki_kernels",
    19: "imports json",
    20: "imports sys",
}
"""Row to what the audit says first, or of the same line."""
BY_VALUES = {5, 6, 7, 8, 9, 10, 11, 16, 17}
"""Rows of which no text tells: wrong in a check of values."""
BY_DEED = {
    2: (REJECTED, "the kernel started a thread"),
    3: (REJECTED, "only plain tensors are compared"),
    4: (REJECTED, "the kernel replaced torch.cuda.streams.Event.elapsed_time"),
    5: (WRONG, "relative L2"),
    6: (WRONG, "wrong in a later call, though right before"),
    7: (WRONG, "output 'y'"),
    8: (REJECTED, "input 'x' was changed by the kernel"),
    9: (WRONG, "relative L2 error 1 "),
    10: (WRONG, "relative L2"),
    11: (WRONG, "relative L2"),
    13: (REJECTED, "the kernel searched the memory"),
    14: (REJECTED, "the kernel wrote to the judge's result channel"),
    16: (WRONG, "wrong in a later call, though right before"),
    17: (WRONG, "workload held-out: "),
    18: (REJECTED, "the kernel replaced kwiki_kernels.timing._elapsed_us"),
    19: (Status.COMPILE_ERROR, "Permission denied"),
    20: (WRONG, "wrong in a later call, though right before"),
}
"""Row to the verdict where the audit is off; 1, 12 and 15 show only on a GPU."""


@pytest.fixture(scope="module")
def deeds() -> dict[str, Evaluation]:
    """Cheats and twins, run on the CPU without an audit."""
    shown = {name: text for name, text in CHEATS.items() if row_of(name) in BY_DEED}
    return {
        evaluation.candidate_id: evaluation
        for job in jobs({**shown, **TWINS}, Defences(audit=False), stage="check")
        for evaluation in run_job(job)
    }


def test_each_row_of_the_threat_list_has_one_cheat_and_one_twin() -> None:
    rows = list(range(1, 21))
    assert [row_of(name) for name in CHEATS] == [row_of(name) for name in TWINS] == rows
    assert BY_TEXT.keys() | BY_VALUES == set(rows)


@pytest.mark.parametrize("name", [name for name in CHEATS if row_of(name) in BY_TEXT])
def test_the_audit_refuses_a_trick_that_shows_in_the_text(name: str) -> None:
    (job,) = jobs({name: CHEATS[name]}, Defences(), stage="check")
    (verdict,) = run_job(job)
    assert verdict.status is REJECTED
    assert verdict.log.startswith("the kernel's text is refused: line ")
    assert BY_TEXT[row_of(name)] in verdict.log
    assert verdict.build_s == 0, "nothing of it ran"


@pytest.mark.parametrize("name", [name for name in CHEATS if row_of(name) in BY_VALUES])
def test_the_audit_leaves_the_others_to_the_checks(name: str) -> None:
    assert audit_source(CHEATS[name]) is None


@needs_triton
@pytest.mark.parametrize("name", [name for name in CHEATS if row_of(name) in BY_DEED])
def test_a_trick_is_caught_by_what_it_does(name: str, deeds: dict[str, Evaluation]) -> None:
    status, log = BY_DEED[row_of(name)]
    assert deeds[name].status is status, deeds[name].log
    assert log in deeds[name].log


@needs_triton
@pytest.mark.parametrize("name", TWINS)
def test_an_honest_twin_is_right(name: str, deeds: dict[str, Evaluation]) -> None:
    verdict = deeds[name]
    assert verdict.status is Status.UNMEASURED, verdict.log
    assert verdict.log == "right on the CPU; nothing was measured"
    assert all(result.error is not None for result in verdict.results)
    assert all(result.timing is None for result in verdict.results)
