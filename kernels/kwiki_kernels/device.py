"""Which GPU is here and what it is called, without importing torch or creating a CUDA context."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from importlib import metadata

from kwiki_kernels.errors import ArchError
from kwiki_kernels.evaluation import Environment, Record

ARCHS = {"sm_90a": (9, 0), "sm_100a": (10, 0), "sm_103a": (10, 3)}
"""Architecture to compute capability. The `a` unlocks what only that chip has, such as wgmma or tcgen05."""


class Gpu(Record):
    """The GPU that torch would call device 0."""

    name: str
    compute_capability: tuple[int, int]
    driver: str
    sm_clock_mhz: int | None
    """The SM clock at the moment of asking."""

    @property
    def arch(self) -> str | None:
        """The architecture to compile for, or None where the judge knows none for this chip."""
        return next((arch for arch, cc in ARCHS.items() if cc == self.compute_capability), None)


def check_arch(arch: str) -> None:
    """Refuse an architecture that is not in `ARCHS`.

    Raises:
        ArchError: it is not.
    """
    if arch not in ARCHS:
        raise ArchError(f"unknown arch '{arch}': known are {', '.join(ARCHS)}")


def visible_gpu() -> str:
    """The index or UUID that `CUDA_VISIBLE_DEVICES` names first; "" or "-1" where it hides all."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()


def local_gpu() -> Gpu | None:
    """The first GPU that `CUDA_VISIBLE_DEVICES` allows, asked of nvidia-smi; None where there is none."""
    answer = _ask_smi(visible_gpu(), "name,compute_cap,driver_version,clocks.sm")
    try:
        name, capability, driver, clock = (field.strip() for field in answer.split(","))
        major, minor = capability.split(".")
        return Gpu(
            name=name,
            compute_capability=(int(major), int(minor)),
            driver=driver,
            sm_clock_mhz=int(clock) if clock.isdigit() else None,
        )
    except ValueError:
        return None


@functools.cache
def gpu_uuid(visible: str) -> str:
    """The UUID of the GPU that is `visible` by that index or UUID; "" where nvidia-smi does not tell.

    An index says which GPU only together with what a batch scheduler shows to a job.
    """
    answer = _ask_smi(visible, "uuid")
    return answer if answer.startswith(("GPU-", "MIG-")) else ""


def _ask_smi(visible: str, fields: str) -> str:
    """The first line of its answer; empty where there is none."""
    smi = shutil.which("nvidia-smi")
    if smi is None or visible in {"", "-1"}:
        return ""
    command = [smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits", f"--id={visible}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return (answer.splitlines() or [""])[0].strip()


def environment(gpu: Gpu | None) -> Environment:
    """Where a verdict is made, as far as it shows without running anything on the GPU."""
    distributions = ("torch", "triton", "nvidia-cutlass-dsl", "kernel-wiki")
    versions = {"python": platform.python_version()}
    for name in distributions:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return Environment(
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        versions=versions,
    )
