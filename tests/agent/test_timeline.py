from __future__ import annotations

import pytest
from kwiki_agent.timeline import MOST_LANES, closer_look, kinds_of, lanes_of, paint, whole
from kwiki_kernels.profile import iket

from tests.kernels.test_profile_iket import Event, trace

RED, GREY = (1.0, 0.0, 0.0), (0.5, 0.5, 0.5)


def launch_of(*events: Event) -> iket.Launch:
    (launch,) = iket.read_trace(trace(*events))
    return launch


def test_a_column_shows_of_each_range_as_much_as_it_covers() -> None:
    lanes = lanes_of(launch_of(("a_run", 0, 0, 300), ("a_wait", 0, 100, 150)))
    image = paint(lanes, {"a_run": RED, "a_wait": GREY}, (0.0, 400.0), 4)
    assert image[0, 0] == pytest.approx([1, 0, 0, 1])
    assert image[0, 1] == pytest.approx([0.75, 0.25, 0.25, 1])  # half of it the wait
    assert image[0, 2] == pytest.approx([1, 0, 0, 1])
    assert image[0, 3, 3] == 0


def test_waiting_is_painted_over_work_and_short_work_over_long() -> None:
    lanes = lanes_of(launch_of(("a_run", 0, 0, 900), ("a_store", 0, 800, 900), ("a_wait", 0, 0, 850)))
    assert [kind.name for kind in kinds_of(lanes)] == ["a_run", "a_store", "a_wait"]


def test_a_crowded_cta_shows_some_warps_of_each_role() -> None:
    events = [(f"{'load' if warp == 31 else 'math'}_run", warp, 0, 1000) for warp in range(32)]
    lanes = lanes_of(launch_of(*events))
    assert len(lanes) == MOST_LANES
    assert {lane.role for lane in lanes} == {"load", "math"}


def test_a_second_cta_is_shown_whole_or_not_at_all() -> None:
    for warps, shown in ((8, 16), (9, 9)):
        both = [iket.Span("a_run", iket.Warp((x, 0, 0), w), 0.0, 1.0) for x in (0, 1) for w in range(warps)]
        assert len(lanes_of(iket.Launch("kernel", tuple(both)))) == shown


def test_a_range_shorter_than_a_tick_still_has_a_picture() -> None:
    lanes = lanes_of(launch_of(("a_run", 0, 64, 64)))
    assert whole(lanes) == (0.0, 32.0)
    assert paint(lanes, {"a_run": RED}, whole(lanes), 4).shape == (1, 4, 4)


def test_few_ranges_need_no_closer_look() -> None:
    assert closer_look(lanes_of(launch_of(("a_run", 0, 0, 1000), ("a_wait", 0, 0, 10)))) is None


def test_the_closer_look_lies_about_the_end_of_the_tile_in_the_middle() -> None:
    tiles = [("mma_tile", 0, start, start + 100_000) for start in range(0, 400_000, 100_000)]
    waits = [("mma_wait", 0, start, start + 100) for start in range(0, 400_000, 1000)]
    window = closer_look(lanes_of(launch_of(*tiles, *waits)))
    assert window is not None
    assert sum(window) / 2 == 200_000
    assert window[1] - window[0] == pytest.approx(400_000 * 60 / 404)
