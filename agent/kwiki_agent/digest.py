"""What the loop needs of each verdict again and again, read once a process.

A verdict with all its samples is some hundred kilobytes; its digest is a few numbers. Scores, budgets and
the shape dispatch are made from digests, so that a round costs the same early and late in a run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kwiki_kernels.evaluation import Evaluation, StaticReport, Status

from kwiki_agent.compare import timings
from kwiki_agent.runs import RunFolder

BYTES_IN_FLIGHT_NEEDED = 36 * 1024
"""Per SM: Little's law for 4.8 TB/s over 132 SMs at about 1 us under load."""
KEPT = 1 << 14
"""Digests in memory, about a kilobyte each."""


@dataclass(frozen=True)
class Digest:
    """A verdict without its samples."""

    candidate_id: str
    status: Status
    log: str
    median_us: Mapping[str, float]
    """Median device time by workload, us, of those that passed."""
    static_score: float | None
    build_s: float
    judge_s: float
    on_gpu: bool

    def geomean_us(self, workloads: Iterable[str]) -> float:
        """Geometric mean of the medians, us."""
        logs = [math.log(self.median_us[uuid]) for uuid in workloads]
        return math.exp(sum(logs) / len(logs))


def digests(run: RunFolder, job_id: str) -> dict[str, Digest]:
    """Digests of one judged job by candidate id, as `RunFolder.evaluations` has the verdicts."""
    found = (_read(path, path.stat().st_mtime_ns) for path in run.evaluation_files(job_id))
    return {digest.candidate_id: digest for digest in found}


def build_digest(run: RunFolder, candidate_id: str) -> Digest | None:
    """The digest of the build-stage verdict, or None."""
    path = run.build_file(candidate_id)
    return _read(path, path.stat().st_mtime_ns) if path.exists() else None


def static_score(reports: tuple[StaticReport, ...]) -> float | None:
    """Geometric mean over binaries of: bytes in flight per SM against what is needed, less spills. 0..1."""
    if not reports:
        return None
    return math.exp(sum(math.log(_one_static_score(report)) for report in reports) / len(reports))


@functools.lru_cache(maxsize=KEPT)
def _read(path: Path, written_ns: int) -> Digest:
    """`written_ns` tells a file from the one that was there before."""
    del written_ns
    verdict = Evaluation.model_validate_json(path.read_bytes())
    return Digest(
        candidate_id=verdict.candidate_id,
        status=verdict.status,
        log=verdict.log,
        median_us={uuid: timing.median_us for uuid, timing in timings(verdict).items()},
        static_score=static_score(verdict.static_reports) if verdict.status is Status.UNMEASURED else None,
        build_s=verdict.build_s,
        judge_s=verdict.judge_s,
        on_gpu=verdict.environment.gpu is not None,
    )


def _one_static_score(report: StaticReport) -> float:
    loaded_bytes = sum(bits // 8 * count for bits, count in report.global_load_bits.items())
    in_flight = report.ctas_per_sm * report.threads_per_cta * loaded_bytes
    spilled = report.spill_bytes + 16 * (report.local_loads + report.local_stores)
    return max(in_flight / (in_flight + BYTES_IN_FLIGHT_NEEDED) / (1.0 + spilled / 64.0), 1e-6)
