"""A kernel against itself promotes nothing, and drift that falls on both sides is no difference."""

from __future__ import annotations

import numpy as np
import pytest
from kwiki_agent.compare import compare
from kwiki_agent.noise import RIVALS, noise_floors, rounds_for
from kwiki_kernels.evaluation import Environment, Evaluation, Order, Status, Timing, WorkloadResult


def verdict(name: str, samples_us: np.ndarray, order: Order = "interleaved") -> Evaluation:
    """[workloads, rounds, iterations] as a verdict."""
    results = tuple(
        WorkloadResult(
            uuid=f"w{number}",
            axes={},
            status=Status.PASSED,
            timing=Timing(timer="cuda_graph", device_us=device_us.tolist(), host_us=1.0, order=order),
        )
        for number, device_us in enumerate(samples_us)
    )
    return Evaluation(
        candidate_id=name, code_hash="", task="t", arch="sm_90a", status=Status.PASSED, results=results,
        environment=Environment(gpu=None, driver=None, versions={}), seed=0, job_id="j", created="",
    )  # fmt: skip


def samples(rng: np.random.Generator, drift: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """Times of 50 iterations on two workloads that follow the drift of the rounds."""
    noise = 1 + 0.01 * rng.standard_normal((2, len(drift), 50))
    return 400 * scale * drift[:, None] * noise


def test_drift_that_falls_on_both_sides_leaves_a_narrow_interval_around_the_truth() -> None:
    rng = np.random.default_rng(0)
    drift = np.array([1.0, 1.05, 1.2, 1.3])
    slow, fast = samples(rng, drift), samples(rng, drift, scale=1 / 1.02)
    paired = compare(verdict("slow", slow), verdict("fast", fast))
    apart = compare(verdict("slow", slow, "sequential"), verdict("fast", fast, "sequential"))
    assert paired is not None
    assert apart is not None
    assert paired.low < 1.02 < paired.high
    assert paired.low > 1.01
    assert apart.high - apart.low > 5 * (paired.high - paired.low)


@pytest.mark.parametrize("comparisons", [1, 10, 11, 200])
def test_there_are_rounds_for_as_many_comparisons_as_asked(comparisons: int) -> None:
    rng = np.random.default_rng(1)
    rounds = np.ones(rounds_for(comparisons))
    verdicts = [verdict(f"c{number}", samples(rng, rounds)) for number in range(RIVALS)]
    floors = noise_floors(verdicts, comparisons, min_gain=0.005)
    assert [floor.workload for floor in floors] == ["all", "w0", "w1"]
    assert all(floor.comparisons == comparisons for floor in floors)


def test_a_kernel_against_itself_promotes_nothing_and_the_margin_says_how_close_it_was() -> None:
    rng = np.random.default_rng(2)
    rounds = np.ones(rounds_for(50))
    verdicts = [verdict(f"c{number}", samples(rng, rounds)) for number in range(RIVALS)]
    overall = noise_floors(verdicts, 50, min_gain=0.005)[0]
    assert overall.promoted == 0
    assert overall.margin < 0.005
    assert 0 < overall.usual <= overall.largest < 0.01


def test_a_process_that_is_always_faster_shows_in_the_noise_floor() -> None:
    rng = np.random.default_rng(3)
    rounds = np.ones(rounds_for(20))
    scales = [1.0, 1.0, 1.0, 1.0, 0.97]
    verdicts = [verdict(f"c{n}", samples(rng, rounds, scale)) for n, scale in enumerate(scales)]
    overall = noise_floors(verdicts, 20, min_gain=0.005)[0]
    assert overall.promoted == 8
    assert 0.029 < overall.margin < 1 / 0.97 - 1


def test_nothing_is_said_about_a_kernel_that_was_not_timed() -> None:
    empty = verdict("c0", np.ones((0, 4, 50)))
    assert noise_floors([empty] * RIVALS, 10, min_gain=0.005) == []
