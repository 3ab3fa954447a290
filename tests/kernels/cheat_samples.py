"""The cheats of each row of the threat list, their honest twins, and jobs on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kwiki_kernels.job import Candidate, Defences, Job, Protocol

from tests.kernels.judge_samples import make_job, task_files

HERE = Path(__file__).parent
SHAPES = {"small": (4, 64), "long": (2, 65536), "held-out": (3, 96)}
WORKLOADS = {"row10": ("long",), "row17": ("small", "held-out")}
"""Rows that show on other workloads than the small one: an expectation that nearly holds, a new width."""
ONE_ROUND = Protocol(warmup=1, iterations=10, rounds=2, build_timeout_s=60, judge_timeout_s=120)


def _texts(folder: str) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((HERE / folder).glob("*.py"))}


HONEST = _texts("honest")
TWINS = {name: text for name, text in HONEST.items() if name.startswith("row")}
CUTE = {name: text for name, text in HONEST.items() if name.startswith("cute")}
_CHEATS = _texts("cheats")
_KERNEL = _CHEATS.pop("kernel")
CHEATS = {name: f"{_KERNEL}\n\n{text}" for name, text in _CHEATS.items()}


def row_of(name: str) -> int:
    return int(name.removeprefix("row")[:2])


def workloads_of(name: str) -> tuple[str, ...]:
    return WORKLOADS.get(name[:5], ("small",))


def candidate(name: str, source: str) -> Candidate:
    return Candidate(id=name, source=source)


def jobs(sources: dict[str, str], defences: Defences, **fields: Any) -> list[Job]:
    """One job for each set of workloads that the named sources are to be judged on."""
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for name, source in sources.items():
        groups.setdefault(workloads_of(name), []).append(candidate(name, source))
    defaults: dict[str, Any] = {
        "task_files": task_files(shapes=SHAPES),
        "protocol": ONE_ROUND,
        "defences": defences,
    }
    return [
        make_job(**{**defaults, "workload_uuids": uuids, "candidates": tuple(candidates), **fields})
        for uuids, candidates in groups.items()
    ]
