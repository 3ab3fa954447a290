"""From verdicts, counters and traces to named figures: the words that pages' triggers speak."""

from __future__ import annotations

import math

from kwiki_kernels.evaluation import Environment, Evaluation, StaticReport, Status, WorkloadResult
from kwiki_kernels.profile import ncu
from kwiki_kernels.profile.iket import Pipeline
from kwiki_kernels.profile.ncu import KernelCounters
from kwiki_kernels.roofline import peaks_of
from kwiki_kernels.sensors import HELD_BACK, POWER_CAP

TENSOR_FEATURES = ("tcgen05.mma", "wgmma", "mma.sync")


def metrics_of(
    verdict: Evaluation, counters: KernelCounters | None = None, pipeline: Pipeline | None = None
) -> dict[str, float]:
    """The profile digest of a candidate; what was not measured is absent.

    `roofline_share` and its parts are the largest workload's, `latency_us` and `host_us` the smallest's.
    """
    metrics: dict[str, float] = {}
    if verdict.static_reports:
        worst = max(verdict.static_reports, key=lambda report: (report.spill_bytes, report.registers))
        metrics |= static_metrics(worst)
    timed = [r for r in verdict.results if r.status is Status.PASSED and r.timing and r.bytes_moved]
    if timed:
        smallest = min(timed, key=lambda result: result.bytes_moved or 0)
        largest = max(timed, key=lambda result: result.bytes_moved or 0)
        metrics |= roofline_metrics(largest, verdict.environment)
        assert smallest.timing is not None
        metrics["latency_us"] = smallest.timing.median_us
        metrics["host_us"] = smallest.timing.host_us
        metrics |= clock_metrics(largest, verdict.environment)
        if counters is not None and len(timed) == 1 and largest.bytes_moved:
            metrics |= _traffic(counters, largest.bytes_moved)
    if counters is not None:
        metrics |= {name: counters.metrics[name] for name in ncu.METRICS if name in counters.metrics}
        metrics |= _derived(counters.metrics)
    if pipeline is not None:
        metrics |= pipeline_metrics(pipeline)
    return metrics


def static_metrics(report: StaticReport) -> dict[str, float]:
    """What the compiled kernel shows without being run."""
    metrics = {
        "registers": float(report.registers),
        "spill_bytes": float(report.spill_bytes),
        "spills": float(report.spills),
        "local_loads": float(report.local_loads),
        "local_stores": float(report.local_stores),
        "occupancy": report.occupancy,
        "ctas_per_sm": float(report.ctas_per_sm),
        "threads_per_cta": float(report.threads_per_cta),
        "smem_bytes": float(report.smem_bytes),
        "instructions": float(report.instructions),
        "tensor_instructions": float(sum(report.features.get(name, 0) for name in TENSOR_FEATURES)),
    }
    if report.global_load_bits:
        metrics["global_load_bits"] = float(max(report.global_load_bits))
    if report.global_store_bits:
        metrics["global_store_bits"] = float(max(report.global_store_bits))
    return metrics


def roofline_metrics(result: WorkloadResult, environment: Environment) -> dict[str, float]:
    """Share of the roofline, and which side of it that is: `bandwidth_share` or `arithmetic_share`.

    Memory is held against the copy bandwidth of the same lease, arithmetic against the stated peak.
    """
    if result.timing is None or not result.bytes_moved:
        return {}
    median_us = result.timing.median_us
    peaks = peaks_of(environment.gpu) if environment.gpu else None
    if result.roofline_us and peaks:
        memory_us = result.bytes_moved / (peaks.hbm_tbps * 1e6)
        if result.roofline_us > memory_us * 1.001:
            share = result.roofline_us / median_us
            return {"roofline_share": share, "arithmetic_share": share}
    if environment.copy_gbps:
        share = result.bytes_moved / (median_us * 1e-6) / (environment.copy_gbps * 1e9)
        return {"roofline_share": share, "bandwidth_share": share}
    return {}


def clock_metrics(result: WorkloadResult, environment: Environment) -> dict[str, float]:
    """The clock at which a workload was timed, against that of a GPU at ease."""
    conditions = result.timing.conditions if result.timing else None
    if conditions is None:
        return {}
    lowest = conditions.sm_clock_mhz[0]
    metrics = {
        "sm_clock_mhz": float(lowest),
        "power_capped": float(HELD_BACK[POWER_CAP] in conditions.held_back_by),
    }
    if environment.sm_clock_mhz:
        metrics["clock_share"] = lowest / environment.sm_clock_mhz
    return metrics


def pipeline_metrics(pipeline: Pipeline) -> dict[str, float]:
    """The role that waits least sets the pace; the two busiest roles should work at the same time.

    Where all warps have one role there is no pipeline: while they wait, other CTAs may work.
    """
    if len(pipeline.roles) < 2:
        return {}
    a, b = sorted(role.role for role in pipeline.roles[:2])
    return {
        "role_wait_share": min(role.wait_share for role in pipeline.roles),
        "role_overlap": pipeline.overlap[f"{a}+{b}"],
    }


def _derived(counted: dict[str, float]) -> dict[str, float]:
    """Ratios of counters that say more than either."""
    derived = {}
    if counted.get(ncu.SMEM_WAVEFRONTS) and ncu.BANK_CONFLICTS in counted:
        derived["bank_conflict_share"] = counted[ncu.BANK_CONFLICTS] / counted[ncu.SMEM_WAVEFRONTS]
    if counted.get(ncu.SM_COUNT) and ncu.GRID_CTAS in counted:
        derived["ctas_launched_per_sm"] = counted[ncu.GRID_CTAS] / counted[ncu.SM_COUNT]
    if waves := counted.get(ncu.WAVES):
        derived["wave_fill"] = waves / math.ceil(waves)
    return derived


def _traffic(counters: KernelCounters, bytes_moved: int) -> dict[str, float]:
    names = ("dram__bytes_read.sum", "dram__bytes_write.sum")
    if not all(name in counters.metrics for name in names):
        return {}
    return {"traffic_ratio": sum(counters.metrics[name] for name in names) / bytes_moved}
