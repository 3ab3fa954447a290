"""How the GPU fares while something is timed: clock, heat, power and other tenants, asked of NVML.

NVML comes with the driver; without it, or where it does not answer, nothing is recorded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kwiki_kernels.device import visible_gpu
from kwiki_kernels.evaluation import Conditions

SM_CLOCK, GPU_TEMPERATURE, MOST_PROCESSES = 1, 0, 256
POWER_CAP = 0x4
HELD_BACK = {
    POWER_CAP: "power cap",
    0x8: "hardware slowdown",
    0x20: "heat",
    0x40: "heat, in hardware",
    0x80: "power brake",
}
"""NVML's reasons for a lower clock, other than idleness and settings."""
CLOCK_DROP = 0.95
"""A lower share of the highest clock between rounds of one kernel disturbs, unless it draws that power."""


@dataclass(frozen=True)
class Reading:
    """The GPU right after a round."""

    sm_clock_mhz: int
    temperature_c: int
    power_w: float
    reasons: int
    """Bits of `HELD_BACK`."""
    others: int
    """Processes that compute on the GPU and are none of ours."""


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Sensors:
    """The first GPU that `CUDA_VISIBLE_DEVICES` allows."""

    def __init__(self) -> None:
        """Raises OSError where NVML is missing or refuses."""
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.gpu = ctypes.c_void_p()
        visible = visible_gpu()
        self._call("nvmlInit_v2")
        if visible.isdigit():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(visible)), ctypes.byref(self.gpu))
        else:
            self._call("nvmlDeviceGetHandleByUUID", visible.encode(), ctypes.byref(self.gpu))

    def read(self, ours: Collection[int]) -> Reading:
        """One reading; `ours` are the processes of the judge that use the GPU.

        Raises:
            OSError: NVML refuses.
        """
        clock, temperature, milliwatts = (ctypes.c_uint() for _ in range(3))
        reasons = ctypes.c_ulonglong()
        self._ask("nvmlDeviceGetClockInfo", SM_CLOCK, ctypes.byref(clock))
        self._ask("nvmlDeviceGetTemperature", GPU_TEMPERATURE, ctypes.byref(temperature))
        self._ask("nvmlDeviceGetPowerUsage", ctypes.byref(milliwatts))
        self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(reasons))
        processes = (_Process * MOST_PROCESSES)()
        count = ctypes.c_uint(MOST_PROCESSES)
        self._ask("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), processes)
        return Reading(
            sm_clock_mhz=clock.value,
            temperature_c=temperature.value,
            power_w=milliwatts.value / 1000,
            reasons=reasons.value & sum(HELD_BACK),
            others=count_others([process.pid for process in processes[: count.value]], ours),
        )

    def _ask(self, name: str, *arguments: object) -> None:
        self._call(name, self.gpu, *arguments)

    def _call(self, name: str, *arguments: object) -> None:
        try:
            code = getattr(self.nvml, name)(*arguments)
        except AttributeError as error:
            raise OSError(f"this NVML has no {name}") from error
        if code:
            raise OSError(f"{name} answered {code}")


def count_others(seen: Sequence[int], ours: Collection[int]) -> int:
    """How many of the seen process ids are not ours.

    This process counts as ours, whether it holds the GPU or not. In a container NVML may give the
    host's ids, which say nothing here: then the numbers are compared.
    """
    if set(seen) & set(ours):
        return len(set(seen) - {*ours, os.getpid()})
    return max(0, len(seen) - len(ours))


def open_sensors() -> Sensors | None:
    """The sensors of this machine's GPU, or None."""
    try:
        return Sensors()
    except OSError:
        return None


def conditions(readings: Sequence[Reading]) -> Conditions | None:
    """What the readings of one kernel's rounds come to."""
    if not readings:
        return None
    reasons = 0
    for reading in readings:
        reasons |= reading.reasons
    clocks = [reading.sm_clock_mhz for reading in readings]
    return Conditions(
        sm_clock_mhz=(min(clocks), max(clocks)),
        temperature_c=max(reading.temperature_c for reading in readings),
        power_w=max(reading.power_w for reading in readings),
        held_back_by=tuple(name for bit, name in HELD_BACK.items() if reasons & bit),
        others=max(reading.others for reading in readings),
    )


def disturbance(found: Conditions | None) -> str:
    """Why figures taken under these conditions cannot be trusted; empty where they can.

    A kernel that draws the power cap is held back by itself, alike in every round.
    """
    if found is None:
        return ""
    if found.others:
        return f"{found.others} other processes computed on the GPU"
    power_cap = HELD_BACK[POWER_CAP]
    if slowed := [reason for reason in found.held_back_by if reason != power_cap]:
        return f"the GPU was slowed down by {slowed[0]}"
    low, high = found.sm_clock_mhz
    if low < CLOCK_DROP * high and power_cap not in found.held_back_by:
        return f"the SM clock went from {high} to {low} MHz"
    return ""
