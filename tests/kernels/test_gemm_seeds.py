"""The dense and the grouped GEMM seed without a GPU: they compile, and their form is the intended one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from kwiki_kernels.audit import OwnKernels, audit_source
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.judge import run_job

from tests.kernels.gemm_seeds import load_seed, name_of, seed_task
from tests.kernels.judge_samples import make_job

SEEDS: dict[str, Callable[..., Any]] = {
    "gemm": lambda axes, knobs: load_seed("gemm").Gemm(**knobs),  # noqa: ARG005
    "grouped_gemm": lambda axes, knobs: load_seed("grouped_gemm").GroupedGemm(groups=axes["groups"], **knobs),
}
AXES = {"gemm": {"M": 64, "N": 64, "K": 64}, "grouped_gemm": {"groups": 128}}
POINTS: dict[str, list[dict[str, Any]]] = {
    "gemm": [
        {},
        {"tile_n": 128, "stages": 6, "ping_pong": True, "cluster_m": 1, "cluster_n": 2},
        {"tile_n": 128, "stages": 6, "cluster_m": 1, "split_k": 8},
        {"tile_m": 16, "tile_n": 144, "stages": 7, "cluster_m": 1},
    ],
    "grouped_gemm": [{}, {"tile_n": 128, "stages": 6, "ping_pong": True}],
}


def compiled(name: str, *points: dict[str, Any], arch: str = "sm_90a") -> list[Evaluation]:
    """The seed with changes to its default knobs, built for the first workload."""
    task, space = seed_task(name)
    candidates = tuple(
        Candidate(id=str(n), source=task.seed_for(arch), knobs=space.default | changes)
        for n, changes in enumerate(points)
    )
    uuids = (task.workloads[0].uuid,)
    return run_job(
        make_job(candidates=candidates, task_files=task.files, workload_uuids=uuids, arch=arch, stage="build")
    )


@pytest.mark.parametrize("name", SEEDS)
def test_the_default_knobs_are_a_valid_point_for_every_workload(name: str) -> None:
    task, space = seed_task(name)
    space.check(space.default)
    assert all(space.valid(space.default, workload.axes) for workload in task.workloads)


@pytest.mark.parametrize(("name", "arch"), [*((name, "sm_90a") for name in SEEDS), ("gemm", "sm_100a")])
def test_the_audit_finds_nothing_in_the_seed(name: str, arch: str) -> None:
    assert audit_source(seed_task(name)[0].seed_for(arch)) is None


@pytest.mark.parametrize("name", SEEDS)
def test_the_kernel_takes_the_points_that_the_constraints_admit(name: str) -> None:
    _, space = seed_task(name)
    draw = random.Random(0)
    admitted = 0
    for _ in range(4000):
        knobs = {knob: draw.choice(spec.values) for knob, spec in space.knobs.items()}
        if space.valid(knobs, AXES[name]):
            SEEDS[name](AXES[name], knobs)
            admitted += 1
    assert admitted > 100


@pytest.mark.parametrize("name", SEEDS)
def test_a_point_compiles_without_spills_to_tma_and_asynchronous_products(name: str) -> None:
    task, space = seed_task(name)
    module = load_seed(name)
    for verdict, changes in zip(compiled(name, *POINTS[name]), POINTS[name], strict=True):
        assert verdict.status is Status.UNMEASURED, verdict.log
        (report,) = verdict.static_reports
        assert OwnKernels.of(task.seed_for("sm_90a")).foreign([report.kernel]) == []
        knobs = space.default | changes
        kernel = SEEDS[name](task.workloads[0].axes, knobs)
        rows = max(64, int(knobs["tile_m"]))
        products = 2 * rows // (64 * kernel.warpgroups) * module.TILE_K // 16
        assert report.features["wgmma"] == products, name_of(changes)  # a first K tile and a loop
        assert report.features["tma.load"] == 2
        assert "mma.sync" not in report.features
        assert report.spill_bytes == 0
        assert report.smem_bytes == kernel.smem_bytes


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tile_n": 256, "ping_pong": True}, "the accumulator would take 256 registers a thread"),
        ({"stages": 5}, "bytes of shared memory; a CTA has 232448"),
        ({"tile_m": 96}, "tile_m must be a multiple of 128, not 96"),
        ({"group_m": 1}, "group_m must be a multiple of cluster_m=2, not 1"),
        ({"tile_m": 8, "cluster_m": 1, "cluster_n": 2}, "must load 8 rows or a multiple"),
        ({"split_k": 16}, "a cluster of 32 CTAs; at most 16 are possible"),
        ({"split_k": 2, "tile_n": 128, "ping_pong": True}, "a cluster has one tile"),
        ({"split_k": 8, "tile_n": 192}, "a tile of 128 x 192 cannot be shared by 8 CTAs"),
        ({"split_k": 2, "stages": 2}, "2 stages are too small to hold an accumulator"),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else "",
)
def test_an_impossible_point_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    _, space = seed_task("gemm")
    with pytest.raises(ValueError, match=sentence):
        SEEDS["gemm"]({}, space.default | changes)


def test_the_blackwell_seed_multiplies_in_tensor_memory_and_holds_two_accumulators() -> None:
    points: list[dict[str, Any]] = [{}, {"tile_n": 192, "cluster_m": 1, "cluster_n": 2}]
    for verdict in compiled("gemm", *points, arch="sm_100a"):
        assert verdict.status is Status.UNMEASURED, verdict.log
        (report,) = verdict.static_reports
        assert report.features["tcgen05.mma"] == 4  # 64 columns of K in steps of 16
        assert report.features["tma.load"] == 2
        assert "wgmma" not in report.features
        assert report.spill_bytes == 0
        assert report.tmem_columns == 512  # 2 x 256, and 2 x 192 up to a power of two
        assert OwnKernels.of(seed_task("gemm")[0].seed_for("sm_100a")).foreign([report.kernel]) == []


def test_a_pair_of_blackwell_ctas_keeps_half_of_each_operand_and_all_of_its_tensor_memory() -> None:
    _, space = seed_task("gemm")
    points: list[dict[str, Any]] = [{"tile_m": 256, "stages": 6}, {"tile_m": 256, "cluster_m": 4}]
    for verdict, changes in zip(compiled("gemm", *points, arch="sm_100a"), points, strict=True):
        assert verdict.status is Status.UNMEASURED, verdict.log
        (report,) = verdict.static_reports
        kernel = load_seed("gemm", "sm100").Gemm(**{**space.default, **changes})
        assert kernel.stage_bytes == (128 + 128) * 64 * 2
        assert report.smem_bytes == kernel.smem_bytes
        assert report.tmem_columns == 512  # 2 accumulators of 256
        assert report.features["tcgen05.mma"] == 4
        assert report.spill_bytes == 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tile_m": 64}, "tile_m must be 128, or 256 for a pair of CTAs, not 64"),
        ({"tile_m": 256, "cluster_m": 1}, "needs pairs along M, so cluster_m must be even, not 1"),
        ({"ping_pong": True}, "ping_pong is for sm_90a"),
        ({"split_k": 2}, "split_k must be 1 on sm_100a, not 2"),
        ({"stages": 5}, "bytes of shared memory; a CTA has 232448"),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else "",
)
def test_a_point_that_is_not_for_blackwell_is_refused_in_one_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    _, space = seed_task("gemm")
    with pytest.raises(ValueError, match=sentence):
        load_seed("gemm", "sm100").Gemm(**{**space.default, **changes})
