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
    assert_drawn(drawn, "mma · CTA 0,0,0 warp 1", "tma · CTA 0,0,0 warp 0", "waiting")


def test_the_latencies_show_the_median_of_each_kernel(tmp_path: Path) -> None:
    draw = random.Random(0)
    rounds = [[draw.gauss(121.0, 0.5) for _ in range(50)] for _ in range(3)]
    drawn = plot_latencies({"candidate": rounds, "baseline": [[130.25] * 3]}, path=tmp_path / "latency")
    assert_drawn(drawn, "candidate", "baseline", "130.25")
