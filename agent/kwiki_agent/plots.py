"""Pictures of a measurement, each as PNG and SVG. The one module that imports matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import matplotlib as mpl
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.profile.iket import Interval, Launch
from kwiki_kernels.roofline import Peaks, Precision, peaks_of
from kwiki_kernels.task import Task
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from kwiki_agent.timeline import Colour, Lane, RangeKind, closer_look, kinds_of, lanes_of, paint, whole
from kwiki_agent.trials import Trial

mpl.rcParams["svg.hashsalt"] = "kernel-wiki"  # the same figures give the same file

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#2f6db5", "#d9822b", "#3a8f5c", "#b5403a", "#7a5ab0", "#8a8f98"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED)
DARKER, PALER = (0.0, -0.35, 0.3, -0.6), (0.72, 0.5, 0.85)
"""Tones of a role's colour, for its working and its waiting ranges: towards black below 0, white above."""
COLUMNS = 1600
"""Of a painted timeline: about what a screen shows of it."""
MOST_NAMES = 16
"""Ranges in a legend."""


@dataclass(frozen=True)
class Point:
    """A kernel on one workload, for the roofline."""

    label: str
    flops: int
    bytes_moved: int
    latency_us: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes_moved

    @property
    def tflops(self) -> float:
        """1e12 operations per second."""
        return self.flops / self.latency_us / 1e6


def plot_roofline(
    points: Sequence[Point], peaks: Peaks, *, gpu: str, precision: Precision, path: Path
) -> tuple[Path, Path]:
    """Throughput over arithmetic intensity below the stated peaks; `path` without suffix."""
    figure, axes = _figure(6.4, 4.2)
    peak, tbps = peaks.tflops[precision], peaks.hbm_tbps
    ridge = peak / tbps
    lowest = min(ridge, *(point.intensity for point in points)) / 6
    highest = max(ridge, *(point.intensity for point in points)) * 6
    middle = (lowest * ridge) ** 0.5
    axes.plot([lowest, ridge, highest], [lowest * tbps, peak, peak], color=GREY, linewidth=2, zorder=1)
    axes.annotate(
        f"{tbps:g} TB/s", (middle, middle * tbps), xytext=(-8, 4), textcoords="offset points",
        ha="right", color=GREY, fontsize=9,
    )  # fmt: skip
    axes.annotate(
        f"{precision} {peak:g} TFLOP/s", (highest, peak), xytext=(-4, 6), textcoords="offset points",
        ha="right", color=GREY, fontsize=9,
    )  # fmt: skip
    for point, colour in zip(points, _cycle(len(points)), strict=True):
        roof = min(peak, point.intensity * tbps)
        axes.plot(
            [point.intensity] * 2, [point.tflops, roof], color=colour, linewidth=1, linestyle=":", zorder=2
        )
        axes.scatter(
            [point.intensity], [point.tflops], color=colour, s=46, zorder=3,
            label=f"{point.label}: {point.tflops / roof:.0%} of its roof",
        )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlim=(lowest, highest),
        xlabel="arithmetic intensity, FLOP per byte", ylabel="TFLOP/s", title=f"Roofline, {gpu}",
    )  # fmt: skip
    axes.set_ylim(top=peak * 2.5)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    return _save(figure, path)


def plot_verdict_roofline(verdict: Evaluation, task: Task, *, path: Path) -> tuple[Path, ...]:
    """The roofline of a verdict's largest workloads; nothing where the GPU's peaks or FLOPs are unknown."""
    gpu = verdict.environment.gpu
    peaks = peaks_of(gpu) if gpu else None
    points = [
        Point(result.uuid, result.flops, result.bytes_moved, result.timing.median_us)
        for result in verdict.results
        if result.flops and result.bytes_moved and result.timing
    ]
    if gpu is None or peaks is None or not points:
        return ()
    largest = sorted(points, key=lambda point: -point.flops)[: len(COLOURS)]
    dtypes = {spec.dtype for spec in task.definition.inputs.values()}
    precision: Precision = "fp8" if any(dtype.startswith("float8") for dtype in dtypes) else "bf16"
    return plot_roofline(largest, peaks, gpu=gpu, precision=precision, path=path)


def plot_progress(trials: Sequence[Trial], *, path: Path) -> tuple[Path, ...]:
    """Scores in order of proposal and the best so far; nothing where nothing has a score."""
    points = [(i, t.score) for i, t in enumerate(trials, start=1) if t.score is not None]
    if not points:
        return ()
    measured = any(t.kind == "measured" for t in trials)
    figure, axes = _figure(7.5, 3.6)
    axes.plot(*zip(*points, strict=True), "o", color=BLUE, markersize=5, label="candidate")
    best = [(i, max(score for j, score in points if j <= i)) for i, _ in points]
    axes.step(*zip(*best, strict=True), where="post", color=GREEN, linewidth=2, label="best so far")
    failed = [i for i, t in enumerate(trials, start=1) if t.failed]
    if failed:
        axes.plot(failed, [axes.get_ylim()[0]] * len(failed), "x", color=RED, label="failed", clip_on=False)
    axes.set_xlabel("candidate, in order of proposal")
    axes.set_ylabel("speed-up over the baseline" if measured else "static score (not a measurement)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, loc="best")
    return _save(figure, path)


def plot_timeline(launch: Launch, *, path: Path) -> tuple[Path, Path]:
    """One row a warp, grouped by role; waiting in pale tones, ranges that all warps have left out.

    The whole launch, and below it a closer look where that holds more ranges than can be told apart. The
    cost does not grow with their number, nor do the files.
    """
    lanes = lanes_of(launch)
    kinds = kinds_of(lanes)
    colours = _range_colours(kinds)
    begin, end = whole(lanes)
    close = closer_look(lanes)
    windows = [(begin, end), *([close] if close else [])]
    figure = Figure(figsize=(10.0, 1.2 + (0.5 + 0.21 * len(lanes)) * len(windows)), layout="constrained")
    panels = figure.subplots(len(windows), squeeze=False)[:, 0]
    for axes, window in zip(panels, windows, strict=True):
        _lanes(axes, lanes, colours, window, begin)
    panels[0].set_title(f"{launch.kernel[:60]}, {_ctas(lanes)}", fontsize=9, loc="left")
    panels[-1].set_xlabel("us from the first range", fontsize=8)
    if close:
        at = [(edge - begin) / 1e3 for edge in close]
        panels[1].set_title(
            f"{at[1] - at[0]:,.1f} of {(end - begin) / 1e3:,.1f} us, about the end of a range",
            fontsize=9, loc="left",
        )  # fmt: skip
        panels[0].axvspan(*at, facecolor="none", edgecolor="#222222", linewidth=1.0, zorder=3)
    named = sorted(kinds, key=lambda kind: (kind.role, kind.waits, -kind.total_ns))[:MOST_NAMES]
    figure.legend(
        handles=[Patch(color=colours[kind.name], label=kind.name) for kind in named],
        loc="outside right upper", frameon=False, fontsize=8,
    )  # fmt: skip
    return _save(figure, path)


def _lanes(
    axes: Axes, lanes: Sequence[Lane], colours: Mapping[str, Colour], window: Interval, begin_ns: float
) -> None:
    image = paint(tuple(lanes), colours, window, COLUMNS).repeat(8, axis=0)
    image[0::8, :, 3] = image[7::8, :, 3] = 0  # a gap between lanes
    left, right = ((edge - begin_ns) / 1e3 for edge in window)
    axes.imshow(image, extent=(left, right, len(lanes) - 0.5, -0.5), aspect="auto", zorder=2)
    ctas = {lane.warp.cta for lane in lanes}
    axes.set_yticks(
        range(len(lanes)), [_lane_name(lane, several=len(ctas) > 1) for lane in lanes], fontsize=7
    )
    axes.tick_params(labelsize=7)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#e6e8eb", linewidth=0.7)
    axes.set_axisbelow(True)


def _lane_name(lane: Lane, *, several: bool) -> str:
    cta = f"{_cta(lane)} " if several else ""
    return f"{lane.role} · {cta}warp {lane.warp.warp}"


def _cta(lane: Lane) -> str:
    return f"CTA {','.join(map(str, lane.warp.cta))}"


def _ctas(lanes: Sequence[Lane]) -> str:
    return " and ".join(dict.fromkeys(map(_cta, lanes)))


def _range_colours(kinds: Sequence[RangeKind]) -> dict[str, Colour]:
    """A hue for each role, in it a tone for each range; in the order given."""
    roles = sorted({kind.role for kind in kinds})
    hue = dict(zip(roles, _cycle(len(roles)), strict=True))
    tones: dict[str, Colour] = {}
    for role in roles:
        for waits, steps in ((False, DARKER), (True, PALER)):
            of = [kind for kind in kinds if (kind.role, kind.waits) == (role, waits)]
            for number, kind in enumerate(sorted(of, key=lambda kind: -kind.total_ns)):
                tones[kind.name] = _tone(hue[role], steps[number % len(steps)])
    return {kind.name: tones[kind.name] for kind in kinds}


def _tone(colour: str, step: float) -> Colour:
    towards = 1.0 if step > 0 else 0.0
    red, green, blue = (part + (towards - part) * abs(step) for part in to_rgb(colour))
    return red, green, blue


def plot_latencies(rounds: Mapping[str, Sequence[Sequence[float]]], *, path: Path) -> tuple[Path, Path]:
    """Every sample of each kernel by round, with its median.

    Args:
        rounds: label to samples [rounds][iterations], us.
    """
    figure, axes = _figure(6.4, 1.3 + 0.62 * len(rounds))
    for y, samples in enumerate(rounds.values()):
        colour = COLOURS[y % len(COLOURS)]
        for number, one in enumerate(samples):
            height = y + 0.22 * (number - (len(samples) - 1) / 2)
            axes.scatter(one, [height] * len(one), s=9, color=colour, alpha=0.35, linewidths=0)
        flat = sorted(chain.from_iterable(samples))
        median = flat[len(flat) // 2]
        axes.plot([median] * 2, [y - 0.4, y + 0.4], color="#222222", linewidth=1.4)
        axes.annotate(
            f"{median:.2f}", (median, y - 0.4), xytext=(0, 2), textcoords="offset points",
            ha="center", fontsize=8,
        )  # fmt: skip
    axes.set_yticks(range(len(rounds)), list(rounds))
    axes.set_ylim(len(rounds) - 0.4, -0.75)
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="device time of one call, us; one row of dots a round", title="Latency")
    return _save(figure, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e8eb", linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def _cycle(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _save(figure: Figure, path: Path) -> tuple[Path, Path]:
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    for target in written:
        undated = {"Date": None} if target.suffix == ".svg" else None
        figure.savefig(target, dpi=150, metadata=undated)
    return written
