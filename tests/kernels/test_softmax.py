"""The softmax seed without a GPU: it compiles over its search space, and its form is the intended one."""

from __future__ import annotations

import random

import pytest
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.judge import run_job
from kwiki_kernels.knobs import KnobSpace
from kwiki_kernels.task import load_task

from tests.kernels.judge_samples import make_job
from tests.kernels.shrunk_tasks import TASKS

TASK = load_task(TASKS / "softmax")


def space() -> KnobSpace:
    assert TASK.knob_space is not None
    return TASK.knob_space


def compiled(arch: str, uuids: tuple[str, ...], *points: dict[str, object]) -> list[Evaluation]:
    """The seed with changes to its default knobs, built for an architecture."""
    candidates = tuple(
        Candidate(id=str(n), source=TASK.seed_for(arch), knobs=space().default | changes)
        for n, changes in enumerate(points)
    )
    job = make_job(
        candidates=candidates, task_files=TASK.files, workload_uuids=uuids, arch=arch, stage="build"
    )  # fmt: skip
    return run_job(job)


def test_the_default_knobs_are_a_valid_point_for_every_workload() -> None:
    space().check(space().default)
    assert all(space().valid(space().default, workload.axes) for workload in TASK.workloads)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_valid_points_compile_and_cross_one_barrier(arch: str) -> None:
    draw = random.Random(0)
    points: list[dict[str, object]] = []
    while len(points) < 4:
        knobs = {name: draw.choice(spec.values) for name, spec in space().knobs.items()}
        if space().valid(knobs, {"width": 4096, "rows": 1}):
            points.append(knobs)
    for verdict, knobs in zip(compiled(arch, ("w4096-r16",), *points), points, strict=True):
        assert verdict.status is Status.UNMEASURED, verdict.log
        (report,) = verdict.static_reports
        assert report.instruction_mix.get("BAR", 0) == (0 if knobs["threads_per_row"] == 32 else 1)
        widest = 256 if arch == "sm_100a" else 128
        assert set(report.global_load_bits) == {min(widest, knobs["vector_bits"])}  # type: ignore[call-overload]


def test_rows_that_end_within_a_vector_do_not_build() -> None:
    odd = '{"uuid": "odd", "axes": {"rows": 1, "width": 1001}}'
    candidate = Candidate(id="0", source=TASK.seed_for("sm_90a"), knobs=space().default)
    job = make_job(
        candidates=(candidate,), task_files=TASK.files | {"workloads.jsonl": odd}, workload_uuids=("odd",),
        stage="build",
    )  # fmt: skip
    (verdict,) = run_job(job)
    assert verdict.status is Status.COMPILE_ERROR
    assert "rows of 1001 elements do not end on 128-bit vectors" in verdict.log
