from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from kwiki_kernels.errors import ProfileError
from kwiki_kernels.profile import iket

Event = tuple[str, int, float, float]
"""Name, warp, start and end in ns."""


def trace(*events: Event, cta: tuple[int, int, int] = (0, 0, 0)) -> str:
    """A trace as run-iket lays it out: names and places in tables, ranges that point into them."""
    names = list(dict.fromkeys(name for name, *_ in events))
    warps = sorted({warp for _, warp, *_ in events})
    launch: dict[str, Any] = {
        "contextId": 1,
        "gridId": 0,
        "kernelName": "kernel",
        "ranges": [
            {
                "rangeId": number,
                "rangeNameIdx": names.index(name),
                "startTs": start,
                "endTs": end,
                "internalEvents": [],
                "warpLocIdxs": [warps.index(warp)],
            }
            for number, (name, warp, start, end) in enumerate(events)
        ],
        "markers": [],
        "warpLifetimes": [],
    }
    places = [{"smId": 0, "tpcId": 0, "gpcId": 0, "ctaId": list(cta), "warpId": warp} for warp in warps]
    return json.dumps({"stringTable": names, "locationTable": places, "launches": [launch]})


PRODUCER_CONSUMER = (
    ("kernel_e2e", 0, 0, 10_000),
    ("kernel_e2e", 1, 0, 10_000),
    ("tma_main", 0, 0, 6_000),
    ("tma_acquire", 0, 1_000, 2_000),
    ("mma_main", 1, 0, 9_000),
    ("ab_wait", 1, 0, 3_000),
)


def pipeline(*events: Event) -> iket.Pipeline:
    (launch,) = iket.read_trace(trace(*events))
    return iket.pipeline(launch)


def test_a_warp_is_of_the_role_that_names_its_longest_range_of_its_own() -> None:
    (launch,) = iket.read_trace(trace(*PRODUCER_CONSUMER))
    assert iket.roles(launch) == {iket.Warp((0, 0, 0), 0): "tma", iket.Warp((0, 0, 0), 1): "mma"}


def test_time_in_ranges_is_busy_unless_the_range_is_named_a_wait() -> None:
    found = {role.role: role for role in pipeline(*PRODUCER_CONSUMER).roles}
    assert (found["tma"].busy_us, found["tma"].waiting_us) == (5.0, 1.0)
    assert (found["mma"].busy_us, found["mma"].waiting_us) == (6.0, 3.0)
    assert found["mma"].wait_share == pytest.approx(1 / 3)


def test_nested_ranges_are_not_counted_twice() -> None:
    (only,) = pipeline(("epi_main", 2, 0, 1_000), ("epi_store", 2, 200, 700)).roles
    assert (only.role, only.busy_us) == ("epi", 1.0)


def test_overlap_is_the_time_both_are_busy_over_the_less_busy_one() -> None:
    assert pipeline(("a_run", 0, 0, 1_000), ("b_run", 1, 500, 4_000)).overlap == {"a+b": 0.5}
    assert pipeline(("a_run", 0, 0, 1_000), ("b_run", 1, 1_000, 2_000)).overlap == {"a+b": 0.0}


def test_roles_of_different_ctas_do_not_overlap() -> None:
    both = json.loads(trace(("a_run", 0, 0, 1_000), ("b_run", 1, 0, 1_000)))
    both["locationTable"][1]["ctaId"] = [1, 0, 0]
    (launch,) = iket.read_trace(json.dumps(both))
    assert iket.pipeline(launch).overlap == {"a+b": 0.0}


def test_a_range_that_many_warps_share_counts_for_each() -> None:
    shared = json.loads(trace(("epi_store", 4, 0, 1_000), ("mma_main", 0, 0, 500)))
    shared["launches"][0]["ranges"][0]["warpLocIdxs"] = [0, 1]
    (launch,) = iket.read_trace(json.dumps(shared))
    assert {span.where.warp for span in launch.spans if span.name == "epi_store"} == {0, 4}


def test_time_stamps_since_1970_keep_their_ticks_of_32_ns() -> None:
    now = 1_796_037_669_729_594_336
    (launch,) = iket.read_trace(trace(("a_run", 0, now, now + 96), ("a_wait", 0, now + 32, now + 64)))
    assert [(span.start_ns, span.end_ns) for span in launch.spans] == [(0.0, 96.0), (32.0, 64.0)]
    (role,) = iket.pipeline(launch).roles
    assert (role.busy_us, role.waiting_us) == (0.064, 0.032)


def test_waits_that_touch_or_span_several_ranges_are_taken_from_each() -> None:
    work = [("a_run", 0, start, start + 100) for start in (0, 200, 400, 600)]
    waits = [("a_wait", 0, start, end) for start, end in ((0, 50), (80, 220), (250, 650), (690, 700))]
    (role,) = pipeline(*work, *waits).roles
    assert (role.busy_us, role.waiting_us) == ((30 + 30 + 40) / 1e3, (50 + 140 + 400 + 10) / 1e3)


def test_launches_of_cuda_graphs_are_read_too() -> None:
    graph = json.loads(trace(("a_run", 0, 0, 1)))
    graph["graphLaunches"] = {"graph_exec_1:0": graph["launches"]}
    graph["launches"] = []
    assert [launch.kernel for launch in iket.read_trace(json.dumps(graph))] == ["kernel"]


def test_of_several_kernels_the_longest_is_looked_at_in_its_last_launch() -> None:
    def launch(kernel: str, ns: float) -> iket.Launch:
        return iket.Launch(kernel, (iket.Span("a_run", iket.Warp((0, 0, 0), 0), 0.0, ns),))

    short, cold, warm = launch("short", 5.0), launch("long", 90.0), launch("long", 60.0)
    assert iket.longest([cold, short, warm, short]) is warm


def test_the_cluster_to_trace_is_asked_for() -> None:
    line = iket.command(["python"], Path("out"), (8192, 0, 0))
    assert line[line.index("--enabled-cluster") + 1] == "8192,0,0"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stringTable": [], "locationTable": [{}]}'])
def test_what_is_no_trace_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ProfileError, match="not a trace that run-iket writes"):
        iket.read_trace(text)


def test_a_kernel_without_ranges_is_told_to_get_some() -> None:
    with pytest.raises(ProfileError, match="put iket ranges into the kernel"):
        iket.read_trace('{"stringTable": [], "locationTable": [], "launches": []}')


def test_every_field_that_is_read_is_one_that_the_installed_writer_knows() -> None:
    known = b""
    for distribution in ("nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-core"):
        for file in importlib.metadata.files(distribution) or []:
            if "iket" in file.parts and file.suffix == ".so":
                known += Path(str(file.locate())).read_bytes()
    sample = json.loads(trace(*PRODUCER_CONSUMER))
    fields = {*sample, "graphLaunches", "ctaId", "warpId", "kernelName", "ranges"}
    fields |= {"rangeNameIdx", "warpLocIdxs", "startTs", "endTs"}
    assert not [field for field in fields if field.encode() not in known]
