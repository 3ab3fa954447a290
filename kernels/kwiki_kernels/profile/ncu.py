"""Nsight Compute: the counters that decide, how to ask for them, and its CSV read back.

The format is that of `ncu --csv --page raw`: a header, a row of units, one row a kernel.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from kwiki_kernels.errors import ProfileError
from kwiki_kernels.evaluation import Record

STALLS = (
    "barrier", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
    "membar", "mio_throttle", "short_scoreboard", "wait",
)  # fmt: skip
"""Why a warp does not issue, as far as an edit to the kernel can change it."""


def stall(reason: str) -> str:
    """The metric of a stall reason: warps that wait for it per issued instruction."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


DURATION = "gpu__time_duration.sum"
DRAM_SHARE = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM_SHARE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR_SHARE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
USED_BYTES_SHARE = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
LOAD_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
STORE_SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
BANK_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
SMEM_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
GRID_CTAS = "launch__grid_size"
SM_COUNT = "device__attribute_multiprocessor_count"
WAVES = "launch__waves_per_multiprocessor"

METRICS = (
    DURATION,
    DRAM_SHARE,
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    SM_SHARE,
    TENSOR_SHARE,
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    *map(stall, STALLS),
    USED_BYTES_SHARE,
    LOAD_SECTORS,
    STORE_SECTORS,
    BANK_CONFLICTS,
    SMEM_WAVEFRONTS,
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__occupancy_limit_blocks",
    "launch__registers_per_thread",
    WAVES,
    GRID_CTAS,
    SM_COUNT,
)

NEVER_ZERO = (USED_BYTES_SHARE, LOAD_SECTORS, STORE_SECTORS)
"""Means over accesses. ncu shows 0 where there was none: a kernel that loads by TMA has no such loads."""

TO_BASE_UNIT = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12,
}  # fmt: skip
"""What makes nanoseconds of a time and bytes of a size; every other unit stands for itself."""


class KernelCounters(Record):
    """One launch of one kernel."""

    kernel: str
    grid: str
    block: str
    metrics: dict[str, float]
    """ncu's name to value; times in ns, sizes in bytes, shares in percent. What was not counted is absent."""

    @property
    def duration_ns(self) -> float:
        """At the clocks of the profiler's own passes: for ranking kernels, not a measurement."""
        return self.metrics.get(DURATION, 0.0)

    @property
    def middle_cluster(self) -> tuple[int, int, int]:
        """The cluster to trace: one from the middle of the grid where that has several waves, else the first.

        CTAs of the first wave start all at once on an idle GPU, and show how a launch begins.
        """
        ctas = [int(size) for size in re.findall(r"\d+", self.grid)]
        if self.metrics.get(WAVES, 0.0) <= 1 or len(ctas) != 3:
            return (0, 0, 0)
        x, y, z = (
            int(size // max(self.metrics.get(f"launch__cluster_dim_{axis}", 1.0), 1.0)) // 2
            for axis, size in zip("xyz", ctas, strict=True)
        )
        return (x, y, z)


def command(target: Sequence[str]) -> list[str]:
    """The command line that counts `METRICS` for what `target` runs between profiler start and stop.

    Clocks stay as they are: with ncu's default, locked to base, every share would be of another machine.
    """
    return [
        "ncu", "--clock-control", "none", "--cache-control", "all",
        "--profile-from-start", "off", "--target-processes", "all",
        "--csv", "--page", "raw", "--print-units", "base",
        "--metrics", ",".join(METRICS), *target,
    ]  # fmt: skip


def read_csv(text: str) -> tuple[KernelCounters, ...]:
    """Every kernel of a raw page, in order of launch.

    Args:
        text: what ncu printed; lines of its own (`==PROF==`) and of the program may stand around the table.

    Raises:
        ProfileError: ncu counted nothing, and why, as far as it said.
    """
    table = text[match.start() :] if (match := re.search(r'^"ID",', text, flags=re.MULTILINE)) else ""
    rows = [row for row in csv.reader(io.StringIO(table)) if len(row) > 1]
    if not rows:
        raise ProfileError(f"ncu counted nothing: {_reason(text)}")
    header, *rest = rows
    if "Metric Name" in header:
        raise ProfileError("this is another page of ncu: run it with --csv --page raw")
    if len(rest) < 2 or any(len(row) != len(header) for row in rest):
        raise ProfileError("the CSV of ncu is cut off: profile again")
    units, *launches = rest
    return tuple(_counters(header, units, launch) for launch in launches)


def dominant(kernels: Sequence[KernelCounters]) -> KernelCounters:
    """The kernel that took longest: what an edit should be about."""
    return max(kernels, key=lambda kernel: kernel.duration_ns)


def _counters(header: list[str], units: list[str], row: list[str]) -> KernelCounters:
    fields = dict(zip(header, row, strict=True))
    metrics = {}
    for name, unit, text in zip(header, units, row, strict=True):
        value = _number(text) if "__" in name else None
        if value is None or (value == 0 and name in NEVER_ZERO):
            continue
        metrics[name] = value * TO_BASE_UNIT.get(unit, 1.0)
    return KernelCounters(
        kernel=fields.get("Kernel Name", ""),
        grid=fields.get("Grid Size", ""),
        block=fields.get("Block Size", ""),
        metrics=metrics,
    )


def _number(text: str) -> float | None:
    """None for `n/a`, with which ncu marks what this GPU does not count."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _reason(text: str) -> str:
    if "ERR_NVGPUCTRPERM" in text:
        return "this user may not read the GPU's counters; ask the administrator to allow it"
    if said := re.findall(r"^==(?:ERROR|WARNING)== (.+)$", text, flags=re.MULTILINE):
        return str(said[0]).strip()
    return "its output holds no table"
