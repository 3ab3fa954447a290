"""When a difference between two kernels is more than noise."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from kwiki_kernels.compare import ratio_interval, speedup
from kwiki_kernels.evaluation import Timing


def timing(
    median_us: float,
    *,
    noise: float = 0.01,
    drift: float = 0.0,
    seed: int = 0,
    timer: Literal["cuda_graph", "cuda_events"] = "cuda_graph",
) -> Timing:
    """Three rounds of 50 samples; `noise` within a round and `drift` between rounds, relative."""
    random = np.random.default_rng(seed)
    centres = median_us * (1 + drift * np.array([-1, 0, 1]))
    samples = centres[:, None] * (1 + noise * random.standard_normal((3, 50)))
    return Timing(timer=timer, device_us=tuple(map(tuple, samples.tolist())), host_us=5.0)


def test_a_kernel_twice_as_fast_is_so_within_a_narrow_interval() -> None:
    low, high = ratio_interval(timing(20, seed=1), timing(10, seed=2))
    assert 1.98 < low < 2 < high < 2.02
    assert low <= speedup(timing(20, seed=1), timing(10, seed=2)) <= high


def test_the_interval_of_two_equal_kernels_holds_1_nearly_always() -> None:
    held = [low <= 1 <= high for low, high in (
        ratio_interval(timing(10, seed=seed), timing(10, seed=1000 + seed)) for seed in range(40)
    )]  # fmt: skip
    assert sum(held) >= 36


def test_rounds_that_disagree_widen_the_interval() -> None:
    narrow = ratio_interval(timing(10, seed=1), timing(9.9, seed=2))
    wide = ratio_interval(timing(10, seed=1, drift=0.05), timing(9.9, seed=2, drift=0.05))
    assert wide[1] - wide[0] > 4 * (narrow[1] - narrow[0])
    assert wide[0] < 1 < wide[1]


def test_one_outlier_in_a_round_moves_nothing() -> None:
    calm = timing(10, seed=1)
    jolted = calm.model_copy(update={"device_us": ((1e6, *calm.device_us[0][1:]), *calm.device_us[1:])})
    assert speedup(jolted, calm) == pytest.approx(1, abs=0.002)


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = timing(10, seed=1), timing(11, seed=2)
    assert ratio_interval(a, b, seed=3) == ratio_interval(a, b, seed=3)


def test_times_of_different_timers_are_not_compared() -> None:
    with pytest.raises(ValueError, match="cuda_graph and cuda_events times cannot be compared"):
        speedup(timing(10), timing(10, timer="cuda_events"))
