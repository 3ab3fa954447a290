"""Which of the differences that a run measured become lessons."""

from __future__ import annotations

from kwiki_agent.compare import Ratio
from kwiki_agent.contrasts import MOST_LESSONS_OF_A_KIND, Contrast, most_telling
from kwiki_kernels.evaluation import Environment, Knobs
from kwiki_kernels.job import Candidate

DEFAULT: Knobs = {"width": 1, "depth": 1, "vector": 128, "cluster": 1, "stages": 2}


def contrast(name: str, *, better: int, worse: int, gain: float) -> Contrast:
    return Contrast(
        worse=Candidate(id="worse", source=""),
        better=Candidate(id="better", source=""),
        rejected={name: worse},
        chosen={name: better},
        unchanged={},
        ratio=Ratio(before="worse", after="better", value=gain, low=gain - 0.01, high=gain + 0.01, n=150),
        before_us=10 * gain,
        after_us=10.0,
        workloads=("w",),
        environment=Environment(gpu="formula", driver="0", versions={}),
    )


def test_what_beats_the_default_is_told_before_what_confirms_it() -> None:
    confirms = [
        contrast("vector", better=128, worse=256, gain=1.3),
        contrast("cluster", better=1, worse=2, gain=1.2),
        contrast("stages", better=2, worse=3, gain=1.1),
    ]
    news = contrast("width", better=8, worse=1, gain=1.04)
    told = most_telling(iter([*confirms, news]), DEFAULT)
    assert told == [news, *confirms][:MOST_LESSONS_OF_A_KIND]


def test_of_one_knob_the_strongest_is_told() -> None:
    weak, strong = (
        contrast("depth", better=4, worse=worse, gain=gain) for worse, gain in ((2, 1.1), (8, 1.2))
    )
    assert most_telling(iter([weak, strong]), DEFAULT) == [strong]
