from __future__ import annotations

import random
from pathlib import Path

from kwiki_agent.plots import Point, plot_latencies, plot_roofline, plot_timeline
from kwiki_kernels.profile import iket
from kwiki_kernels.roofline import PEAKS

from tests.kernels.test_profile_iket import PRODUCER_CONSUMER, trace


def assert_drawn(paths: tuple[Path, Path], *words: str) -> None:
    png, svg = paths
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text(encoding="utf-8")
    assert all(f"<!-- {word} -->" in text for word in words)  # the SVG names what it draws as outlines


def test_the_roofline_says_how_much_of_its_roof_each_kernel_reaches(tmp_path: Path) -> None:
    point = Point("square", flops=2 * 8192**3, bytes_moved=6 * 8192**2, latency_us=1500.0)
    drawn = plot_roofline(
        [point], PEAKS["H200"], gpu="NVIDIA H200", precision="bf16", path=tmp_path / "roofline"
    )
    assert_drawn(drawn, "square: 74% of its roof", "bf16 989.4 TFLOP/s", "4.8 TB/s")


def test_the_timeline_has_a_row_for_every_warp_named_by_role(tmp_path: Path) -> None:
    (launch,) = iket.read_trace(trace(*PRODUCER_CONSUMER))
    drawn = plot_timeline(launch, path=tmp_path / "timeline")
    assert_drawn(drawn, "mma · warp 1", "tma · warp 0", "kernel, CTA 0,0,0", "mma_main", "ab_wait")


def test_a_timeline_of_many_ranges_has_a_closer_look_and_small_files(tmp_path: Path) -> None:
    steps = [(f"mma_{what}", warp, at, at + length) for warp in range(3) for at in range(0, 10**7, 1000)
             for what, length in [("step", 900), ("wait", 200)]]  # fmt: skip
    (launch,) = iket.read_trace(trace(*steps))
    drawn = plot_timeline(launch, path=tmp_path / "timeline")
    assert_drawn(drawn, "30.0 of 9,999.9 us, about the end of a range", "mma_step", "mma_wait")
    assert all(path.stat().st_size < 500_000 for path in drawn)


def test_the_latencies_show_the_median_of_each_kernel(tmp_path: Path) -> None:
    draw = random.Random(0)
    rounds = [[draw.gauss(121.0, 0.5) for _ in range(50)] for _ in range(3)]
    drawn = plot_latencies({"candidate": rounds, "baseline": [[130.25] * 3]}, path=tmp_path / "latency")
    assert_drawn(drawn, "candidate", "baseline", "130.25")
