"""What a compiled kernel shows without being run, from its cubin: resources, occupancy, instructions.

Sizes come from the ELF itself, instructions from `nvdisasm` (the package nvidia-cuda-nvdisasm).
Needs neither a GPU nor torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kwiki_kernels.cubin import Resources, resources
from kwiki_kernels.errors import StaticReportError
from kwiki_kernels.evaluation import StaticReport
from kwiki_kernels.sass import Instruction, access_widths, disassemble, features, tmem_columns

Limit = Literal["registers", "shared memory", "threads", "CTAs"]


@dataclass(frozen=True)
class SMLimits:
    """What one SM holds. Figures: CUDA C++ Programming Guide, technical specifications per compute
    capability; 9.0, 10.0 and 10.3 agree in all of them."""

    threads: int = 2048
    ctas: int = 32
    registers: int = 65536
    smem_bytes: int = 228 * 1024
    smem_reserved_bytes: int = 1024
    """The system's own share of every CTA; the linker counts it in the size of `.nv.shared`."""
    smem_granule_bytes: int = 128
    register_granule: int = 256
    """Registers are given to a warp in units of this many (CUDA's cuda_occupancy.h)."""
    partitions: int = 4
    """Each has its own quarter of the registers, so what is left over in one is lost."""


SM_LIMITS = {arch: SMLimits() for arch in ("sm_90a", "sm_100a", "sm_103a")}


def static_reports(
    cubin: bytes,
    arch: str,
    static_axes: Mapping[str, int],
    dynamic_smem_bytes: Mapping[str, int] | None = None,
) -> list[StaticReport]:
    """One report per kernel of a cubin, in order of names.

    Args:
        cubin: the ELF image for `arch` (sm_90a, sm_100a, sm_103a).
        static_axes: axis values the binary is specialised for; copied into the reports.
        dynamic_smem_bytes: kernel name to shared memory asked for at launch, as
            `launch_smem_bytes` finds it; a kernel not named counts as asking for none.

    Raises:
        StaticReportError: unknown arch, unreadable cubin, or no nvdisasm.
    """
    if arch not in SM_LIMITS:
        raise StaticReportError(f"no SM limits known for {arch}; known: {', '.join(SM_LIMITS)}")
    kernels = resources(cubin, smem_reserved_bytes=SM_LIMITS[arch].smem_reserved_bytes)
    code: dict[str, list[Instruction]] = {name: [] for name in kernels}
    for instruction in disassemble(cubin):
        if instruction.kernel in code:
            code[instruction.kernel].append(instruction)
    dynamic = dynamic_smem_bytes or {}
    return [
        _report(name, kernel, code[name], arch, dict(static_axes), dynamic.get(name, 0))
        for name, kernel in sorted(kernels.items())
    ]


def launch_smem_bytes(host_ir: str) -> dict[str, int]:
    """Kernel name to dynamic shared memory per CTA, bytes, from the host code of a DSL function.

    `host_ir` is the text of a compiled function's `ir_module`. The DSL sizes shared memory while it
    lowers, and only the launch there knows the result. Sizes that are not constants are left out.
    """
    constants: dict[str, int] = {}
    smem_field = value = None
    found: dict[str, int] = {}
    for line in host_ir.splitlines():
        text = line.strip()
        if match := re.match(r"(%\d+) = llvm\.mlir\.constant\((\d+) : i64\)", text):
            constants[match[1]] = int(match[2])
        elif text.startswith("llvm.func"):
            constants.clear()
            smem_field = value = None
        elif match := re.match(
            r"(%\d+) = llvm\.getelementptr %\d+\[0, 2\].*<\(array<3 x i32>, array<3 x i32>", text
        ):
            smem_field = match[1]
        elif match := re.match(r"llvm\.store (%\d+), (%\d+) : i64", text):
            if match[2] == smem_field:
                value = constants.get(match[1])
        elif (match := re.search(r"addressof @kernels_(\w+)", text)) and value is not None:
            found[match[1]] = value
    return found


def occupancy(registers: int, smem_bytes: int, threads_per_cta: int, limits: SMLimits) -> tuple[int, Limit]:
    """CTAs resident on one SM, and what keeps another one out; clusters are not considered.

    Args:
        registers: per thread.
        smem_bytes: per CTA, static plus dynamic, without the system's reserve.
    """
    warps = -(-threads_per_cta // 32)
    warp_registers = _round_up(registers * 32, limits.register_granule)
    resident_warps = limits.registers // limits.partitions // warp_registers * limits.partitions
    smem = _round_up(smem_bytes + limits.smem_reserved_bytes, limits.smem_granule_bytes)
    bounds: dict[Limit, int] = {
        "registers": resident_warps // warps,
        "shared memory": limits.smem_bytes // smem,
        "threads": limits.threads // (warps * 32),
        "CTAs": limits.ctas,
    }
    # Of equal bounds the first is named: more threads than an SM holds cannot be had at any price.
    order: tuple[Limit, ...] = ("threads", "CTAs", "registers", "shared memory")
    limit = min(order, key=bounds.__getitem__)
    return bounds[limit], limit


def _report(
    name: str,
    kernel: Resources,
    code: list[Instruction],
    arch: str,
    static_axes: dict[str, int],
    dynamic_smem_bytes: int,
) -> StaticReport:
    limits = SM_LIMITS[arch]
    smem_bytes = kernel.static_smem_bytes + dynamic_smem_bytes
    threads = kernel.threads or 1024
    ctas, limit = occupancy(kernel.registers, smem_bytes, threads, limits)
    mix = Counter(instruction.family for instruction in code)
    local = [instruction for instruction in code if instruction.family in {"LDL", "STL"}]
    return StaticReport(
        arch=arch,
        kernel=name,
        static_axes=static_axes,
        registers=kernel.registers,
        spill_bytes=kernel.frame_bytes,
        local_loads=mix["LDL"],
        local_stores=mix["STL"],
        spills=sum(instruction.is_spill for instruction in local),
        local_lines=dict(Counter(i.line for i in local if i.line).most_common()),
        smem_bytes=smem_bytes,
        tmem_columns=tmem_columns(code),
        threads_per_cta=threads,
        ctas_per_sm=ctas,
        occupancy=ctas * _round_up(threads, 32) / limits.threads,
        occupancy_limit=limit,
        instructions=len(code),
        instruction_mix=dict(mix.most_common()),
        features=features(code),
        global_load_bits=access_widths(code, ("LDG", "LDGSTS")),
        global_store_bits=access_widths(code, ("STG",)),
        smem_load_bits=access_widths(code, ("LDS",)),
        smem_store_bits=access_widths(code, ("STS",)),
    )


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
