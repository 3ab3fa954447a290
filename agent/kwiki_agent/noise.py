"""The noise floor: what comparing a kernel with itself shows, by the rule that decides on promotion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from kwiki_kernels.evaluation import Evaluation, Record
from kwiki_kernels.job import LEAST_TURNS

from kwiki_agent.compare import Ratio, compare, timings

RIVALS = 5
"""Processes of the same kernel. Each pair is compared, since where a process lies in memory matters too."""


class NoiseFloor(Record):
    """Comparisons of a kernel with itself."""

    workload: str
    """A uuid, or `all`: the geometric mean over all of them, on which promotion rests."""
    comparisons: int
    promoted: int
    """Those in which one side would have replaced the other."""
    usual: float
    """95 % of the ratios differ from 1 by less than this."""
    largest: float
    """The largest difference of a ratio from 1."""
    margin: float
    """The least `min_gain` with which none would have been promoted."""


def rounds_for(comparisons: int) -> int:
    """Rounds that each of `RIVALS` needs so that at least so many comparisons can be made."""
    pairs = math.comb(RIVALS, 2)
    return LEAST_TURNS * -(-comparisons // pairs)


def noise_floors(verdicts: Sequence[Evaluation], comparisons: int, min_gain: float) -> list[NoiseFloor]:
    """Noise over all workloads together, then on each by itself; empty where the kernel did not pass.

    Args:
        verdicts: of the same kernel, from one interleaved job with `rounds_for(comparisons)` rounds.
        comparisons: how many to make; every four rounds of two of them are one.
        min_gain: the contract's.
    """
    uuids = sorted(timings(verdicts[0]))
    floors = []
    for name, chosen in [("all", uuids), *((uuid, [uuid]) for uuid in uuids)] if uuids else []:
        ratios = list(islice(_ratios(verdicts, chosen), comparisons))
        if ratios:
            floors.append(_floor(name, ratios, min_gain))
    return floors


def _ratios(verdicts: Sequence[Evaluation], uuids: list[str]) -> Iterator[Ratio]:
    rounds = min(len(timing.device_us) for verdict in verdicts for timing in timings(verdict).values())
    for start in range(0, rounds - LEAST_TURNS + 1, LEAST_TURNS):
        parts = [_part(verdict, start) for verdict in verdicts]
        for before, after in combinations(parts, 2):
            if ratio := compare(before, after, workloads=uuids, seed=start):
                yield ratio


def _part(verdict: Evaluation, start: int) -> Evaluation:
    """The verdict as it would be from four of its rounds."""
    results = []
    for result in verdict.results:
        timing = result.timing
        if timing:
            device_us = timing.device_us[start : start + LEAST_TURNS]
            timing = timing.model_copy(update={"device_us": device_us})
        results.append(result.model_copy(update={"timing": timing}))
    return verdict.model_copy(update={"results": tuple(results)})


def _floor(workload: str, ratios: list[Ratio], min_gain: float) -> NoiseFloor:
    gains = [max(ratio.low, 1 / ratio.high) - 1 for ratio in ratios]
    differences = sorted(abs(math.log(ratio.value)) for ratio in ratios)
    usual = differences[math.ceil(0.95 * len(differences)) - 1]
    return NoiseFloor(
        workload=workload,
        comparisons=len(ratios),
        promoted=sum(gain > min_gain for gain in gains),
        usual=math.expm1(usual),
        largest=math.expm1(differences[-1]),
        margin=max(0.0, *gains),
    )
