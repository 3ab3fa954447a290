"""From a verdict to what the wiki can be asked: metric values and a question."""

from __future__ import annotations

from kwiki_kernels.evaluation import Evaluation, StaticReport
from kwiki_kernels.task import Task

from kwiki_agent.compare import timings
from kwiki_agent.state import Stage

LAUNCH_BOUND_US = 10.0
"""Below this the launch and one trip to DRAM make up most of a small kernel's time."""


def metrics_of(verdict: Evaluation) -> dict[str, float]:
    """The profile digest, by the metric names of the wiki's vocabulary.

    `roofline_share` is the largest workload's bytes over time over the copy bandwidth of the same
    lease; `latency_us` and `host_us` are the smallest workload's.
    """
    metrics: dict[str, float] = {}
    if verdict.static_reports:
        worst = max(verdict.static_reports, key=lambda report: (report.spill_bytes, report.registers))
        metrics |= _static_metrics(worst)
    times = timings(verdict)
    sized = [result for result in verdict.results if result.uuid in times and result.bytes_moved]
    if sized:
        largest = max(sized, key=lambda result: result.bytes_moved or 0)
        smallest = min(sized, key=lambda result: result.bytes_moved or 0)
        metrics["latency_us"] = times[smallest.uuid].median_us
        metrics["host_us"] = times[smallest.uuid].host_us
        if share := roofline_share(verdict, largest.uuid):
            metrics["roofline_share"] = share
    return metrics


def roofline_share(verdict: Evaluation, uuid: str) -> float | None:
    """Bytes moved per second over the measured copy bandwidth, 0..1; None where either is unknown."""
    result = verdict.result(uuid)
    copy_gbps = verdict.environment.copy_gbps
    if result is None or result.timing is None or not result.bytes_moved or not copy_gbps:
        return None
    return result.bytes_moved / (result.timing.median_us * 1e-6) / (copy_gbps * 1e9)


def query_for(stage: Stage, task: Task, metrics: dict[str, float]) -> str:
    """The question for the wiki at this stage of the loop."""
    definition = task.definition
    dtypes = " ".join(sorted({spec.dtype for spec in definition.inputs.values()}))
    subject = f"{definition.op_type} {dtypes} kernel"
    match stage:
        case "draft":
            return f"{subject}: how to write and tune it"
        case "compile-error":
            return f"{subject}: compile error"
        case "wrong-numbers":
            return f"{subject}: wrong numbers"
        case "too-slow":
            return f"{subject}: {' '.join(_symptoms(metrics))} make it faster"


def _static_metrics(report: StaticReport) -> dict[str, float]:
    metrics = {
        "registers": float(report.registers),
        "spill_bytes": float(report.spill_bytes),
        "occupancy": report.occupancy,
        "smem_bytes": float(report.smem_bytes),
    }
    if report.global_load_bits:
        metrics["global_load_bits"] = float(max(report.global_load_bits))
    return metrics


def _symptoms(metrics: dict[str, float]) -> list[str]:
    symptoms = []
    if metrics.get("spill_bytes", 0.0) > 0:
        symptoms.append("register spills")
    if metrics.get("occupancy", 1.0) < 0.5:
        symptoms.append("low occupancy")
    if metrics.get("global_load_bits", 128.0) < 128:
        symptoms.append("narrow loads")
    if metrics.get("roofline_share", 1.0) < 0.9:
        symptoms.append("memory bandwidth below copy")
    if 0 < metrics.get("latency_us", 0.0) < LAUNCH_BOUND_US:
        symptoms.append("launch bound")
    return symptoms or ["memory bound"]
