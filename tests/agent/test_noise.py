"""A kernel against itself promotes nothing, and drift that falls on both sides is no difference."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from kwiki_agent.compare import compare, offset_share
from kwiki_agent.noise import RIVALS, noise_floors, rounds_for
from kwiki_kernels.evaluation import Environment, Evaluation, Order, Status, Timing, WorkloadResult

EVIDENCE = Path(__file__).parents[2] / "wiki" / "evidence"


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


def test_two_hundred_comparisons_of_one_kernel_with_itself_promoted_nothing_on_an_h200(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = json.loads((EVIDENCE / "aa-rmsnorm-h200-20261130.json").read_text())
    verdicts = [
        verdict(name, np.array(list(rounds_us.values()))[..., None])
        for name, rounds_us in seen["round_medians_us"].items()
    ]
    floors = noise_floors(verdicts, 200, min_gain=0.005)
    assert [floor.comparisons for floor in floors] == [200] * 6
    assert [floor.promoted for floor in floors] == [0] * 6
    assert floors[0].margin < 0.004
    monkeypatch.setattr("kwiki_agent.compare.PROCESS_OFFSET_US", 0.0)
    assert noise_floors(verdicts, 200, min_gain=0.005)[0].promoted > 100, "rounds alone do not show offsets"


def test_the_same_kernel_in_two_leases_agrees_within_the_interval_of_its_processes() -> None:
    first, second = (
        [
            {uuid: row[1] for uuid, row in job["verdicts"]["c0001"]["device_us"].items()}
            for job in json.loads((EVIDENCE / name).read_text())["jobs"].values()
            if "c0001" in job["verdicts"]
        ]
        for name in ("rmsnorm-h200-20261130.json", "rmsnorm-h200-b.json")
    )
    covered, apart = [], []
    for one, other in itertools.product(first, second):
        assert len(one) == 35
        spread = {uuid: 1.96 * math.hypot(offset_share(one[uuid]), offset_share(other[uuid])) for uuid in one}
        logs = {uuid: math.log(one[uuid] / other[uuid]) for uuid in one}
        covered += [abs(logs[uuid]) < spread[uuid] for uuid in one]
        apart.append(abs(sum(logs.values())) / math.sqrt(sum(width**2 for width in spread.values())))
    assert len(covered) == 12 * 35
    assert 0.94 < sum(covered) / len(covered) < 0.99
    assert max(apart) < 1, "and so do the geometric means"
