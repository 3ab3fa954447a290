"""An executor that answers from a formula instead of a GPU."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable

import numpy as np
from kwiki_agent.loop import Loop
from kwiki_kernels.evaluation import (
    Environment,
    Evaluation,
    Knobs,
    StaticReport,
    Status,
    Timing,
    WorkloadResult,
)
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.task import parse_task

Latency = Callable[[Knobs, dict[str, int]], float]


def latency_us(knobs: Knobs, axes: dict[str, int]) -> float:
    """A kernel with a best width of 8 and a best depth of 4, and a shape (n = 1) that wants depth 1."""
    wide, deep = int(knobs["width"]), int(knobs["depth"])
    best_depth = 1 if axes["n"] == 1 else 4
    return 10.0 * axes["n"] ** 0.5 * (1 + abs(np.log2(wide / 8)) / 5 + abs(np.log2(deep / best_depth)) / 10)


class FormulaExecutor:
    """Implements the Executor protocol: latencies from a formula, with seeded noise of about 0.2 %."""

    name = "formula"

    def __init__(self, latency: Latency = latency_us, *, measures: bool = True) -> None:
        self.latency = latency
        self.measuring = measures
        self.failing: dict[str, Status] = {}
        """Candidate ids that fail, and how."""
        self.judged: list[str] = []
        """Every candidate that was judged, in order: a candidate twice in one job would be a defect."""
        self._results: dict[str, list[Evaluation]] = {}

    def measures(self, arch: str) -> bool:
        del arch
        return self.measuring

    def submit(self, job: Job) -> None:
        if job.id in self._results:
            return
        baselines = [Candidate(id=name, source="", policy="baseline") for name in job.baselines]
        self._results[job.id] = [self._evaluate(job, c) for c in (*baselines, *job.candidates)]

    def collect(self, job_id: str) -> list[Evaluation] | None:
        return self._results.get(job_id)

    def _evaluate(self, job: Job, candidate: Candidate) -> Evaluation:
        self.judged.append(f"{job.id}/{candidate.id}")
        status = self.failing.get(candidate.id)
        measured = job.stage == "judge" and self.measuring
        results = (
            [] if status else [self._result(job, candidate, uuid, measured) for uuid in job.workload_uuids]
        )
        return Evaluation(
            candidate_id=candidate.id,
            code_hash=candidate.code_hash,
            task="toy",
            arch=job.arch,
            status=status or (Status.PASSED if measured else Status.UNMEASURED),
            log=f"{candidate.id} fails by design" if status else "",
            results=tuple(results),
            static_reports=()
            if candidate.policy == "baseline"
            else (static_report(job.arch, candidate.knobs),),
            environment=Environment(gpu="formula", driver="0", versions={}, copy_gbps=1000.0),
            seed=job.seed,
            job_id=job.id,
            created=dt.datetime.now(dt.UTC).isoformat(),
            judge_s=0.01,
        )

    def _result(self, job: Job, candidate: Candidate, uuid: str, measured: bool) -> WorkloadResult:
        task = parse_task(job.task_files, {}, origin="job")
        axes = task.definition.axis_values(task.workload(uuid).axes)
        knobs = candidate.knobs_for(axes)
        timing = None
        if measured:
            true_us = 60.0 * axes["n"] ** 0.5 if candidate.policy == "baseline" else self.latency(knobs, axes)
            rng = np.random.default_rng(zlib.crc32(f"{job.id}{candidate.id}{uuid}".encode()))
            samples = true_us * (1 + 0.002 * rng.standard_normal((3, 50)))
            timing = Timing(timer="cuda_graph", device_us=samples.tolist(), host_us=5.0)
        return WorkloadResult(
            uuid=uuid,
            axes=axes,
            knobs=knobs,
            status=Status.PASSED if measured else Status.UNMEASURED,
            timing=timing,
            bytes_moved=task.definition.bytes_moved(axes),
        )


def static_report(arch: str, knobs: Knobs) -> StaticReport:
    return StaticReport(
        arch=arch, kernel="toy", static_axes={}, registers=16 + 4 * int(knobs["depth"]), spill_bytes=0,
        local_loads=0, local_stores=0, smem_bytes=0, threads_per_cta=128, ctas_per_sm=8, occupancy=0.5,
        occupancy_limit="threads", instructions=100, instruction_mix={"LDG": int(knobs["depth"])},
        global_load_bits={128: int(knobs["depth"])}, global_store_bits={128: 1},
    )  # fmt: skip


MakeLoop = Callable[..., Loop]
