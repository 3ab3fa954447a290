"""The verdict on a candidate: what was built, whether it was right, how fast it ran.

A kernel that fails is data: every outcome is a `Status`, never an exception.
Times are microseconds; sizes are bytes; ratios are baseline time over candidate time.
"""

from __future__ import annotations

import statistics
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

KnobValue = bool | int | str
Order = Literal["sequential", "interleaved"]
Timer = Literal["cuda_graph", "cupti", "cuda_events"]
Knobs = dict[str, KnobValue]


class Status(StrEnum):
    """The words of FlashInfer-Trace, and two of ours: REJECTED (a caught trick) and UNMEASURED (no GPU)."""

    PASSED = "PASSED"
    COMPILE_ERROR = "COMPILE_ERROR"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    REJECTED = "REJECTED"
    UNMEASURED = "UNMEASURED"


class Record(BaseModel):
    """Base of the judge's records: unknown keys refused, values immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class ErrorStats(Record):
    """Error of one workload's outputs against the float64 reference, the worst output counting."""

    max_abs: float
    max_rel: float
    relative_l2: float
    """||out - ref|| / ||ref||; dimensionless."""


class Conditions(Record):
    """How the GPU fared over the rounds of one timing, asked of NVML after each round."""

    sm_clock_mhz: tuple[int, int]
    """Lowest and highest."""
    temperature_c: int
    """Highest."""
    power_w: float
    """Highest."""
    held_back_by: tuple[str, ...] = ()
    """What kept the clock down, in any round."""
    others: int = 0
    """Most processes of others that computed on the GPU."""


class Timing(Record):
    """Latency samples of one workload. Device time, span and host overhead: three claims, never mixed."""

    timer: Timer
    device_us: tuple[tuple[float, ...], ...]
    """[rounds][iterations] device time of one call with a cold L2, us."""
    host_us: float
    """Median time the host needs to issue one call, us."""
    span_us: float | None = None
    """Median time from the first kernel's start to the last one's end of a plain call, us; the host's gaps
    between kernels count. None where it was not asked for."""
    order: Order = "sequential"
    """`interleaved`: round n of every contestant ran side by side with round n of the others."""
    conditions: Conditions | None = None
    """None where NVML does not answer."""
    disturbed: str = ""
    """What spoilt these rounds, though they were repeated once; empty where nothing did."""

    @property
    def median_us(self) -> float:
        """Median over all samples of all rounds, us."""
        return statistics.median([t for samples in self.device_us for t in samples])

    @property
    def round_medians_us(self) -> tuple[float, ...]:
        """Median of each round, us: their spread is the noise between rounds."""
        return tuple(statistics.median(samples) for samples in self.device_us)


class StaticReport(Record):
    """What the compiled kernel shows without being run."""

    arch: str
    kernel: str
    static_axes: dict[str, int]
    """The axis values this binary was specialised for."""
    registers: int
    spill_bytes: int
    """Stack frame bytes per thread, where ptxas spills to; 0 is good."""
    local_loads: int
    local_stores: int
    spills: int = 0
    """Those of the local loads and stores that save or restore a register; the others index an array."""
    local_lines: dict[str, int] = {}
    """Source line, `kernel.py:12`, to its local loads and stores; empty without line information."""
    smem_bytes: int
    """Shared memory per CTA, static plus dynamic."""
    tmem_columns: int | None = 0
    """Columns of the largest tensor memory allocation; None where its size is no constant."""
    threads_per_cta: int
    ctas_per_sm: int
    occupancy: float
    """Theoretical: resident warps over the SM's maximum, 0..1."""
    occupancy_limit: Literal["registers", "shared memory", "threads", "CTAs"]
    instructions: int
    instruction_mix: dict[str, int]
    """SASS opcode (without modifiers) to static count, most frequent first."""
    features: dict[str, int] = {}
    """Special units by their PTX names (tcgen05.mma, wgmma, tma.load, ...) to static count."""
    global_load_bits: dict[int, int]
    """Access width in bits to static count of global loads."""
    global_store_bits: dict[int, int]
    smem_load_bits: dict[int, int] = {}
    smem_store_bits: dict[int, int] = {}


class WorkloadResult(Record):
    """One candidate on one workload. For a baseline `knobs` is empty."""

    uuid: str
    axes: dict[str, int]
    knobs: Knobs = {}
    held_out: bool = False
    """The judge drew this workload: checked, never timed."""
    status: Status
    log: str = ""
    error: ErrorStats | None = None
    timing: Timing | None = None
    contest_passed: bool | None = None
    """The verdict that the contest's own tolerance gives; None where the task is of no contest."""
    bytes_moved: int | None = None
    """Fewest bytes the task must move: what it must read once, each output written once."""
    flops: int | None = None
    roofline_us: float | None = None
    """Time at the GPU's stated peaks, us; None where nothing ran or the GPU is in no table."""
    floor_us: float | None = None
    """Time that no kernel can undercut with a cold L2, us."""


class Environment(Record):
    """Where a verdict was made; without this a figure is worthless."""

    gpu: str | None
    driver: str | None
    versions: dict[str, str]
    """python, torch, cuda, nvidia-cutlass-dsl, kernel-wiki."""
    sm_clock_mhz: int | None = None
    copy_gbps: float | None = None
    """Bandwidth of a device copy kernel in the same lease, read plus written, GB/s."""
    timer_floor_us: float | None = None
    """What the timer shows for a kernel that does nothing, us; part of every sample."""
    isolation: tuple[str, ...] = ()
    """What the candidate's process was confined by, a note for each level; empty where none ran."""


class Evaluation(Record):
    """The verdict on one candidate over all workloads of a job."""

    candidate_id: str
    code_hash: str
    task: str
    arch: str
    status: Status
    """PASSED only if every workload passed; otherwise the first failing workload's status."""
    log: str = ""
    results: tuple[WorkloadResult, ...] = ()
    static_reports: tuple[StaticReport, ...] = ()
    environment: Environment
    seed: int
    job_id: str
    created: str
    """UTC, ISO 8601."""
    build_s: float = Field(default=0.0, ge=0)
    judge_s: float = Field(default=0.0, ge=0)

    def result(self, uuid: str) -> WorkloadResult | None:
        """The result for one workload, or None."""
        return next((r for r in self.results if r.uuid == uuid), None)
