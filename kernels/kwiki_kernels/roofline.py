"""What a workload costs at least, and how fast a GPU could pay for it.

Two times, both lower bounds. The roofline counts every byte once and every FLOP once, at the peaks
that vendors state. The floor is what no kernel can undercut with a cold L2: outputs may still sit
in the L2 when the clock stops, so only what exceeds it counts as written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from kwiki_kernels.evaluation import Record

Precision = Literal["fp8", "bf16", "tf32", "fp32"]


class Work(Record):
    """What one call must do: bytes moved between memory and chip, and arithmetic."""

    bytes_read: int = Field(ge=0)
    bytes_written: int = Field(ge=0)
    flops: int = Field(default=0, ge=0)
    """Multiplications and additions; 0 where they do not count beside the bytes."""
    precision: Precision = "bf16"
    """The fastest arithmetic that the inputs' precision allows."""

    @property
    def bytes_moved(self) -> int:
        """Read plus written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Peaks:
    """Stated dense peaks of a GPU."""

    hbm_tbps: float
    """TB/s, 1e12 bytes."""
    l2_bytes: int
    """The largest figure that anyone states or the driver reports, since it lowers the floor."""
    tflops: dict[Precision, float]
    """1e12 operations per second."""


_HOPPER: dict[Precision, float] = {"fp8": 1978.9, "bf16": 989.4, "tf32": 494.7, "fp32": 66.9}
_BLACKWELL: dict[Precision, float] = {"fp8": 4500, "bf16": 2250, "tf32": 1125, "fp32": 75}
PEAKS = {
    "H100": Peaks(3.35232, 62_914_560, _HOPPER),
    "H200": Peaks(4.8, 62_914_560, _HOPPER),
    "B200": Peaks(7.67232, 132_644_864, _BLACKWELL),
    "B300": Peaks(8, 135_528_448, _BLACKWELL),
}
"""By the word that names the GPU. Sources stand in `wiki/hardware.yaml`; a test keeps the two equal."""


def peaks_of(gpu: str) -> Peaks | None:
    """The peaks of a GPU by the name its driver gives it, such as `NVIDIA H200`; None for others.

    Parts with other memories share a word (an H100 PCIe has 2 TB/s), and their floor is then too low:
    safe for a bound.
    """
    return next((peaks for name, peaks in PEAKS.items() if name in gpu), None)


def roofline_us(work: Work, peaks: Peaks) -> float:
    """The larger of memory and arithmetic time at the stated peaks, us."""
    return max(_memory_us(work.bytes_moved, peaks), _arithmetic_us(work, peaks))


def floor_us(work: Work, peaks: Peaks) -> float:
    """Time that no kernel can undercut on a cold L2, us."""
    must_move = work.bytes_read + max(0, work.bytes_written - peaks.l2_bytes)
    return max(_memory_us(must_move, peaks), _arithmetic_us(work, peaks))


def _memory_us(bytes_moved: int, peaks: Peaks) -> float:
    return bytes_moved / (peaks.hbm_tbps * 1e6)


def _arithmetic_us(work: Work, peaks: Peaks) -> float:
    return work.flops / (peaks.tflops[work.precision] * 1e6)
