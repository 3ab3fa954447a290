"""Ratios of two verdicts with an interval: what promotion and lessons rest on.

Only evaluations of one job are compared, since a job is one lease of one GPU: figures of
different leases differ by clocks and neighbours more than kernels do. Where a job let its rivals take
turns, round n of one side belongs to round n of the other: both are drawn together, so that what the
GPU did to both cancels.

Each process has an offset of its own, which its rounds share and no number of them shows: where its
buffers, code and graph lie. On an H200 the medians of one kernel in 3 to 4 processes, for 35 RMSNorm
workloads of 7 to 400 us, differed by 0.19 us (standard deviation, 30 November 2026), alike for short
and long ones. Each resample draws such an offset for both sides of each workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from kwiki_kernels.evaluation import Evaluation, Record, Status, Timing

RESAMPLES = 400
PROCESS_OFFSET_US = 0.2
PROCESS_OFFSET_SHARE = 0.001
"""Standard deviation of a process's offset: the larger of both counts."""

Floats = npt.NDArray[np.float64]


class Ratio(Record):
    """Time of `before` over time of `after`, geometric mean over workloads: above 1, `after` is faster."""

    before: str
    after: str
    value: float
    low: float
    high: float
    """95 % bootstrap interval over rounds, iterations and the offsets of processes."""
    n: int
    """Samples on each side, all workloads together."""

    @property
    def faster(self) -> bool:
        return self.low > 1.0

    @property
    def slower(self) -> bool:
        return self.high < 1.0


def compare(
    before: Evaluation, after: Evaluation, *, workloads: Iterable[str] | None = None, seed: int = 0
) -> Ratio | None:
    """How much faster `after` is than `before` on the workloads both passed.

    Args:
        workloads: uuids to compare on; all common ones by default.

    Returns:
        None where a workload asked for was not timed on both sides in the same way, or none is common.
    """
    left, right = timings(before), timings(after)
    chosen = sorted(left.keys() & right.keys()) if workloads is None else list(workloads)
    if not chosen or any(uuid not in left or uuid not in right for uuid in chosen):
        return None
    rng = np.random.default_rng(seed)
    log_ratio = np.zeros(RESAMPLES)
    point = 0.0
    n = 0
    for uuid in chosen:
        if left[uuid].timer != right[uuid].timer:
            return None  # one holds the host's gaps, the other does not
        a, b = np.asarray(left[uuid].device_us), np.asarray(right[uuid].device_us)
        point += math.log(np.median(a) / np.median(b))
        picked_a = rng.integers(len(a), size=(RESAMPLES, len(a)))
        together = left[uuid].order == right[uuid].order == "interleaved" and len(a) == len(b)
        picked_b = picked_a if together else rng.integers(len(b), size=(RESAMPLES, len(b)))
        log_ratio += np.log(_medians(a, picked_a, rng) / _medians(b, picked_b, rng))
        offset = math.hypot(offset_share(float(np.median(a))), offset_share(float(np.median(b))))
        log_ratio += rng.normal(0.0, offset, RESAMPLES)
        n += min(a.size, b.size)
    log_ratio /= len(chosen)
    low, high = np.exp(np.quantile(log_ratio, [0.025, 0.975]))
    return Ratio(
        before=before.candidate_id,
        after=after.candidate_id,
        value=math.exp(point / len(chosen)),
        low=float(low),
        high=float(high),
        n=n,
    )


def timings(evaluation: Evaluation) -> dict[str, Timing]:
    """Workload uuid to timing, for those that passed; none for a kernel that failed a held-out one."""
    sound = {Status.PASSED, Status.UNMEASURED}
    if any(result.held_out and result.status not in sound for result in evaluation.results):
        return {}
    return {
        result.uuid: result.timing
        for result in evaluation.results
        if result.status is Status.PASSED and result.timing is not None
    }


def geomean_us(evaluation: Evaluation, workloads: Iterable[str] | None = None) -> float:
    """Geometric mean of the median device times, us; over the passed workloads by default."""
    times = timings(evaluation)
    chosen = list(times if workloads is None else workloads)
    return math.exp(sum(math.log(times[uuid].median_us) for uuid in chosen) / len(chosen))


def offset_share(time_us: float) -> float:
    """Standard deviation of a process's offset, as a share of the time."""
    return max(PROCESS_OFFSET_US / time_us, PROCESS_OFFSET_SHARE)


def _medians(samples: Floats, rounds: npt.NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """[RESAMPLES] medians of samples [rounds, iterations]: the picked rounds, in each iterations anew."""
    iterations = samples.shape[1]
    drawn = samples[rounds[..., None], rng.integers(iterations, size=(*rounds.shape, iterations))]
    return np.asarray(np.median(drawn.reshape(len(rounds), -1), axis=1))
