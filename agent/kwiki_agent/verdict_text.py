"""A verdict in words and tables, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kwiki_kernels.evaluation import Evaluation, StaticReport
from kwiki_kernels.profile.metrics import roofline_metrics

from kwiki_agent.compare import compare

KERNEL = "kernel"
"""The id of the kernel that a verdict is about; the others are its rivals."""


def timing_rows(verdicts: dict[str, Evaluation]) -> list[tuple[str, ...]]:
    """The kernel's workloads, beside every other verdict as time over the kernel's time."""
    kernel = verdicts[KERNEL]
    others = [verdict for name, verdict in verdicts.items() if name != KERNEL]
    timed = any(result.timing for result in kernel.results)
    if not timed and len({result.status for result in kernel.results}) <= 1:
        return []  # the verdict above says it for all of them
    spans = any(result.timing and result.timing.span_us for result in kernel.results)
    header: tuple[str, ...] = ("workload", "status")
    if timed:
        header += ("device us", *(["span us"] if spans else []), "host us", "of roofline")
    rows = [(*header, *(f"{o.candidate_id} (x)" for o in others if timed))]
    for result in kernel.results:
        cells: tuple[str, ...] = ()
        if timed and result.timing:
            share = roofline_metrics(result, kernel.environment).get("roofline_share")
            cells = (f"{result.timing.median_us:.2f}",)
            if spans:
                cells += (f"{result.timing.span_us:.2f}" if result.timing.span_us else "-",)
            cells += (f"{result.timing.host_us:.1f}", f"{share:.0%}" if share else "-")
            for other in others:
                ratio = compare(other, kernel, workloads=[result.uuid])
                cells += (f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "-",)
        row = (result.uuid, str(result.status), *cells)
        rows.append((*row, *["-"] * (len(rows[0]) - len(row))))
    return rows


def disturbances(verdicts: dict[str, Evaluation]) -> Iterator[str]:
    """A line for each timing that something else has spoilt."""
    for name, verdict in verdicts.items():
        for result in verdict.results:
            if result.timing and result.timing.disturbed:
                yield f"{name} on {result.uuid} was disturbed twice: {result.timing.disturbed}"


def report_lines(report: StaticReport) -> Iterator[str]:
    """What the compiled kernel shows, in words."""
    yield (
        f"{report.registers} registers, {report.threads_per_cta} threads, {report.smem_bytes} bytes of "
        f"shared memory; {report.ctas_per_sm} CTAs per SM, occupancy {report.occupancy:.0%}, "
        f"limited by {report.occupancy_limit}"
    )
    if report.tmem_columns != 0:
        columns = "unknown" if report.tmem_columns is None else report.tmem_columns
        yield f"tensor memory columns: {columns}"
    if report.local_loads or report.local_stores:
        lines = ", ".join(f"{line} ({count})" for line, count in list(report.local_lines.items())[:5])
        yield (
            f"local memory: {report.spill_bytes} bytes a thread, {report.local_loads} loads, "
            f"{report.local_stores} stores, of which {report.spills} spills" + (f": {lines}" if lines else "")
        )
    if report.features:
        yield ", ".join(f"{name} {count}" for name, count in report.features.items())
    widths = {
        "global loads": report.global_load_bits, "global stores": report.global_store_bits,
        "shared loads": report.smem_load_bits, "shared stores": report.smem_store_bits,
    }  # fmt: skip
    yield (
        "; ".join(
            f"{name}: {', '.join(f'{count} of {bits} bits' for bits, count in found.items())}"
            for name, found in widths.items()
            if found
        )
        or "no plain loads or stores"
    )
    mix = ", ".join(f"{name} {count}" for name, count in list(report.instruction_mix.items())[:8])
    yield f"{report.instructions} instructions: {mix}, ..."
