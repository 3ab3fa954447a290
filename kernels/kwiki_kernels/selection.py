"""Whether a kernel selected the best candidates of each row, in whatever order.

Scores that differ by less than a kernel's rounding may go either way, so not the indices are
compared but the scores that they stand for: sorted, against the best ones, sorted.
"""

from __future__ import annotations

import torch

from kwiki_kernels.check import Finding
from kwiki_kernels.evaluation import ErrorStats, Status
from kwiki_kernels.tolerance import ContestTolerance, Tolerance

SCORE_TOLERANCE = 4e-3
"""Of a score's size plus the RMS of its row's scores: what one rounding to bfloat16 can do at most."""


def check_selection(
    name: str, chosen: torch.Tensor, slots: torch.Tensor, scores: torch.Tensor, tolerance: Tolerance
) -> Finding:
    """Compare what a kernel chose with the best there was.

    Args:
        name: the output.
        chosen: [rows, k] integers, the slots that the kernel chose and -1 where there are no more.
        slots: [rows, n] integers, the slots that could be chosen, -1 where a row has fewer.
        scores: [rows, n] float64, the score of each; ignored where the slot is -1.
        tolerance: its `contest`, if any, gives the contest's verdict.
    """
    worst = ErrorStats(max_abs=0.0, max_rel=0.0, relative_l2=0.0)
    contest_passed = True
    for row in range(chosen.shape[0]):
        there = slots[row] >= 0
        got, log = _scores_of(chosen[row], slots[row][there], scores[row][there])
        if log:
            passed = None if tolerance.contest is None else False
            return Finding(Status.INCORRECT_NUMERICAL, f"output '{name}', row {row}: {log}", None, passed)
        best = scores[row][there].sort(descending=True).values[: len(got)]
        got = got.sort(descending=True).values
        if not len(got):
            continue
        off, size = best - got, best.abs() + scores[row][there].square().mean().sqrt()
        norm = float(best.square().sum().sqrt())
        error = ErrorStats(
            max_abs=float(off.max()),
            max_rel=float((off / size.clamp_min(1e-300)).max()),
            relative_l2=float(off.square().sum().sqrt()) / norm if norm else 0.0,
        )
        worst = max(worst, error, key=lambda e: e.max_rel)
        contest_passed &= tolerance.contest is None or _close(got, best, tolerance.contest)
    verdict = None if tolerance.contest is None else contest_passed
    if worst.max_rel > SCORE_TOLERANCE:
        log = f"output '{name}': a chosen score lies {worst.max_abs:.3g} below the one it stands for"
        return Finding(Status.INCORRECT_NUMERICAL, log, worst, verdict)
    return Finding(Status.PASSED, "", worst, verdict)


def _scores_of(chosen: torch.Tensor, slots: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, str]:
    """The scores of what one row chose, and what is wrong with the choice itself."""
    picked = chosen[chosen != -1].long()
    many = min(len(chosen), len(slots))
    if len(picked) != many:
        return scores[:0], f"{len(picked)} slots chosen, must be {many}"
    if len(set(picked.tolist())) != len(picked):
        return scores[:0], "a slot is chosen twice"
    ordered, where = slots.long().sort()
    found = torch.searchsorted(ordered, picked).clamp_max(max(len(ordered) - 1, 0))
    if len(picked) and not torch.equal(ordered[found], picked):
        stray = int(picked[ordered[found] != picked][0])
        return scores[:0], f"slot {stray} is not among those of the row"
    return scores[where[found]], ""


def _close(got: torch.Tensor, best: torch.Tensor, contest: ContestTolerance) -> bool:
    off = (got - best).abs().float()
    return not bool(((off > contest.atol) & (off / (best.abs().float() + 1e-8) > contest.rtol)).any())
