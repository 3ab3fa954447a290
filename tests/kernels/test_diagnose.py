from __future__ import annotations

import re
from pathlib import Path

import pytest
from kwiki_kernels.evaluation import (
    Conditions,
    Environment,
    Evaluation,
    StaticReport,
    Status,
    Timing,
    WorkloadResult,
)
from kwiki_kernels.profile import iket, ncu
from kwiki_kernels.profile.diagnose import BOUNDS, FINDINGS, NOTHING_STANDS_OUT, SETTLED, Rule, diagnose
from kwiki_kernels.profile.metrics import metrics_of

VOCABULARY = (Path(__file__).parents[2] / "wiki" / "vocabulary.yaml").read_text(encoding="utf-8")
GEMM_COUNTERS = Path(__file__).parent / "captures" / "gemm_8192_h200.ncu.csv"
"""A bf16 GEMM of 8192^3 on an H200: TMA, one loading and eight multiplying warps, two CTAs a cluster."""
STATIC = StaticReport(
    arch="sm_90a", kernel="k", static_axes={}, registers=64, spill_bytes=0, local_loads=0, local_stores=0,
    smem_bytes=0, threads_per_cta=256, ctas_per_sm=4, occupancy=0.5, occupancy_limit="registers",
    instructions=100, instruction_mix={}, global_load_bits={128: 4}, global_store_bits={128: 4},
)  # fmt: skip


def words(section: str) -> set[str]:
    """The words that one section of the vocabulary defines."""
    body = re.split(rf"(?m)^{section}:$", VOCABULARY)[1]
    return set(re.findall(r"(?m)^  ([\w.-]+): ", re.split(r"(?m)^\w", body)[0]))


def verdict(
    median_us: float,
    *,
    report: StaticReport = STATIC,
    bytes_moved: int = 10**9,
    clock_mhz: int = 1980,
    **result: float | int,
) -> Evaluation:
    """One workload at this time, on a GPU that copies 4,000 GB/s; below 1980 MHz power holds it down."""
    conditions = Conditions(
        sm_clock_mhz=(clock_mhz, 1980), temperature_c=45, power_w=550.0,
        held_back_by=("power cap",) if clock_mhz < 1980 else (),
    )  # fmt: skip
    workload = WorkloadResult.model_validate(
        {
            "uuid": "w", "axes": {}, "status": Status.PASSED, "bytes_moved": bytes_moved,
            "timing": Timing(
                timer="cuda_graph", device_us=((median_us,),), host_us=3.0, conditions=conditions
            ), **result,
        }
    )  # fmt: skip
    return Evaluation(
        candidate_id="c", code_hash="0", task="t", arch="sm_90a", status=Status.PASSED, results=(workload,),
        static_reports=(report,), seed=0, job_id="j", created="2026-11-30T00:00:00+00:00",
        environment=Environment(
            gpu="NVIDIA H200", driver="580", versions={}, sm_clock_mhz=1980, copy_gbps=4000.0
        ),
    )  # fmt: skip


@pytest.mark.parametrize("rule", [*BOUNDS, *SETTLED, *FINDINGS], ids=lambda rule: rule.symptom)
def test_every_rule_speaks_words_of_the_vocabulary_and_can_fire(rule: Rule) -> None:
    assert rule.symptom in words("symptoms")
    assert {condition.metric for condition in rule.when} <= words("metrics")
    step = {"<": -0.1, "<=": 0.0, ">": 0.1, ">=": 0.0}
    metrics: dict[str, float] = {}
    for condition in rule.when:
        metrics[condition.metric] = condition.threshold + step[condition.op]
    diagnosis = diagnose(metrics)
    assert rule.symptom in diagnosis.symptoms
    assert {condition.metric for condition in rule.when} <= {e.metric for e in diagnosis.evidence}


def gemm_counters() -> ncu.KernelCounters:
    """The capture, read back."""
    (counters,) = ncu.read_csv(GEMM_COUNTERS.read_text(encoding="utf-8"))
    return counters


def gemm_verdict(median_us: float, *, clock_mhz: int = 1980) -> Evaluation:
    """The judge's side of that capture."""
    report = STATIC.model_copy(update={"features": {"wgmma": 8}, "global_load_bits": {}, "occupancy": 0.19})
    return verdict(
        median_us, report=report, clock_mhz=clock_mhz,
        bytes_moved=6 * 8192**2, flops=2 * 8192**3, roofline_us=1111.3,
    )  # fmt: skip


def test_every_figure_of_a_digest_is_a_metric_of_the_vocabulary() -> None:
    counters = ncu.KernelCounters(
        kernel="k", grid="", block="", metrics=dict.fromkeys(ncu.METRICS, 2.0) | {"of__no.interest": 1.0}
    )
    roles = tuple(iket.RoleTime(role=name, warps=1, busy_us=1, waiting_us=1) for name in "ab")
    pipeline = iket.Pipeline(kernel="k", duration_us=2, roles=roles, overlap={"a+b": 1.0})
    metrics = metrics_of(verdict(300.0), counters, pipeline)
    assert set(ncu.METRICS) <= metrics.keys() <= words("metrics")


def test_a_kernel_at_the_copy_bandwidth_is_memory_bound_and_left_alone() -> None:
    diagnosis = diagnose(metrics_of(verdict(260.0)))
    assert diagnosis.bound == "memory-bound"
    assert diagnosis.roofline_share == pytest.approx(250 / 260)
    assert diagnosis.next_edit.startswith("Stop tuning")


def test_a_slow_kernel_with_narrow_loads_is_told_to_widen_them() -> None:
    narrow = STATIC.model_copy(update={"global_load_bits": {16: 32}})
    diagnosis = diagnose(metrics_of(verdict(1000.0, report=narrow)))
    assert diagnosis.bound == "latency-bound"
    assert diagnosis.symptoms[0] == "narrow-loads"
    assert "128 bits" in diagnosis.next_edit
    assert (diagnosis.evidence[0].metric, diagnosis.evidence[0].value) == ("global_load_bits", 16)


def test_spills_come_before_what_they_cause() -> None:
    spilling = STATIC.model_copy(update={"spill_bytes": 64, "local_loads": 9, "spills": 12, "occupancy": 0.2})
    assert diagnose(metrics_of(verdict(1000.0, report=spilling))).symptoms[0] == "register-spills"


def test_an_array_in_local_memory_is_told_from_a_spill() -> None:
    array = STATIC.model_copy(update={"spill_bytes": 64, "local_loads": 9, "spills": 0})
    assert "range_constexpr" in diagnose(metrics_of(verdict(1000.0, report=array))).next_edit


def test_a_matrix_product_is_held_against_arithmetic() -> None:
    product = verdict(1200.0, bytes_moved=400_000_000, flops=10**12, roofline_us=1011.0)
    diagnosis = diagnose(metrics_of(product))
    assert diagnosis.bound == "compute-bound"
    assert diagnosis.roofline_share == pytest.approx(1011 / 1200)
    assert "bandwidth_share" not in diagnosis.metrics


def test_a_time_below_the_roofline_is_doubted_first() -> None:
    assert diagnose(metrics_of(verdict(100.0))).symptoms[0] == "implausible-speed"


def test_counters_show_traffic_conflicts_and_tails() -> None:
    counted = {
        "dram__bytes_read.sum": 1.5e9, "dram__bytes_write.sum": 0.5e9, ncu.BANK_CONFLICTS: 30.0,
        ncu.SMEM_WAVEFRONTS: 100.0, ncu.DRAM_SHARE: 60.0,
        ncu.WAVES: 2.2, ncu.GRID_CTAS: 1000.0, ncu.SM_COUNT: 132.0,
    }  # fmt: skip
    counters = ncu.KernelCounters(kernel="k", grid="", block="", metrics=counted)
    diagnosis = diagnose(metrics_of(verdict(1000.0), counters))
    assert diagnosis.metrics["traffic_ratio"] == pytest.approx(2.0)
    assert {"redundant-traffic", "bank-conflicts", "tail-wave"} <= set(diagnosis.symptoms)
    assert "too-few-ctas" not in diagnosis.symptoms


def test_a_gemm_that_fills_the_tensor_pipe_is_told_so_and_nothing_else() -> None:
    diagnosis = diagnose(metrics_of(gemm_verdict(1380.0), gemm_counters()))
    assert (diagnosis.bound, diagnosis.symptoms) == ("compute-bound", ("compute-bound",))
    assert diagnosis.next_edit.startswith("Stop tuning: the math pipe is full.")
    first = diagnosis.evidence[0]
    assert (first.metric, first.value, first.threshold) == (ncu.TENSOR_SHARE, 97.93, 90)
    # True, and no fault: tiles are read several times, and most warps wait by design.
    assert diagnosis.metrics["traffic_ratio"] == pytest.approx(4.05, abs=0.01)
    assert diagnosis.metrics[ncu.stall("barrier")] == 10.07


def test_a_full_tensor_pipe_at_a_clock_that_power_holds_down_is_told_that() -> None:
    diagnosis = diagnose(metrics_of(gemm_verdict(1562.0, clock_mhz=1515), gemm_counters()))
    assert diagnosis.roofline_share == pytest.approx(0.71, abs=0.01)
    assert "the power limit holds the clock down" in diagnosis.next_edit
    assert {("clock_share", 1515 / 1980), ("power_capped", 1.0)} <= {
        (e.metric, e.value) for e in diagnosis.evidence
    }


def test_the_same_counters_at_half_the_use_of_the_pipe_ask_for_a_fuller_one() -> None:
    counters = gemm_counters()
    idle = {ncu.TENSOR_SHARE: 45.0, ncu.SM_SHARE: 45.0}
    slower = counters.model_copy(update={"metrics": counters.metrics | idle})
    diagnosis = diagnose(metrics_of(gemm_verdict(3000.0), slower))
    assert (diagnosis.bound, diagnosis.symptoms[0]) == ("latency-bound", "tensor-pipe-idle")
    assert not {"uncoalesced-loads", "redundant-traffic", "barrier-stalls"} & set(diagnosis.symptoms)


def test_a_launch_of_a_few_microseconds_is_not_told_to_wait_less_at_barriers() -> None:
    stalled = {ncu.stall("barrier"): 6.2, ncu.stall("long_scoreboard"): 19.0, ncu.DRAM_SHARE: 31.0}
    counters = ncu.KernelCounters(kernel="k", grid="", block="", metrics=stalled)
    diagnosis = diagnose(metrics_of(verdict(9.9, bytes_moved=16_000_000), counters))
    assert diagnosis.bound == "launch-bound"
    assert diagnosis.next_edit.startswith("Shorten the fixed part")


def test_where_all_warps_have_one_role_their_waits_are_no_pipeline() -> None:
    row = iket.RoleTime(role="row", warps=4, busy_us=2, waiting_us=8)
    pipeline = iket.Pipeline(kernel="k", duration_us=10, roles=(row,), overlap={})
    diagnosis = diagnose(metrics_of(verdict(300.0), None, pipeline), pipeline)
    assert "tma-wait-stalls" not in diagnosis.symptoms
    assert diagnosis.pipeline == pipeline


def test_a_pipeline_whose_busiest_role_waits_is_deepened() -> None:
    roles = (
        iket.RoleTime(role="mma", warps=1, busy_us=6, waiting_us=4),
        iket.RoleTime(role="tma", warps=1, busy_us=2, waiting_us=8),
    )
    pipeline = iket.Pipeline(kernel="k", duration_us=10, roles=roles, overlap={"mma+tma": 0.9})
    diagnosis = diagnose(metrics_of(verdict(1000.0), None, pipeline))
    assert diagnosis.metrics["role_wait_share"] == pytest.approx(0.4)
    assert diagnosis.symptoms[0] == "tma-wait-stalls"


def test_without_a_measurement_nothing_is_claimed_about_the_bound() -> None:
    unmeasured = verdict(1.0).model_copy(update={"results": ()})
    diagnosis = diagnose(metrics_of(unmeasured))
    assert (diagnosis.bound, diagnosis.roofline_share) == ("unknown", None)
    assert diagnosis.next_edit == NOTHING_STANDS_OUT
    assert diagnose({}).symptoms == ()
