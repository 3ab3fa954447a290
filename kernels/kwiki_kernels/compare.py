"""Whether one kernel is faster than another, beyond the noise. No torch: the agent decides with it too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kwiki_kernels.evaluation import Timing

DRAWS = 2000


def speedup(baseline: Timing, candidate: Timing) -> float:
    """Median device time of the baseline over that of the candidate: above 1, the candidate is faster.

    Raises:
        ValueError: the two were timed in different ways.
    """
    _same_timer(baseline, candidate)
    return baseline.median_us / candidate.median_us


def ratio_interval(
    baseline: Timing, candidate: Timing, *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of `speedup`. An interval that holds 1 is no difference.

    Rounds are drawn first and samples within them, since samples of one round share its clock and
    temperature: drawing over all samples at once would claim a precision that the rounds do not have.

    Raises:
        ValueError: the two were timed in different ways.
    """
    _same_timer(baseline, candidate)
    random = np.random.default_rng(seed)
    ratios = _medians(baseline, random) / _medians(candidate, random)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail))
    return float(low), float(high)


def _medians(timing: Timing, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """`DRAWS` medians of resampled rounds. [DRAWS]"""
    samples = np.array(timing.device_us)
    rounds, iterations = samples.shape
    size = (DRAWS, rounds, iterations)
    drawn_rounds = random.integers(rounds, size=(DRAWS, rounds, 1))
    drawn = samples[drawn_rounds, random.integers(iterations, size=size)]
    medians: npt.NDArray[np.float64] = np.median(drawn.reshape(DRAWS, -1), axis=1)
    return medians


def _same_timer(a: Timing, b: Timing) -> None:
    if a.timer != b.timer:
        raise ValueError(
            f"{a.timer} and {b.timer} times cannot be compared: one holds host gaps, the other not"
        )
