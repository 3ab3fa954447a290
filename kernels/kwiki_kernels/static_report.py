"""What a compiled kernel shows without being run, from its cubin: resources, occupancy, instructions.

Sizes come from the ELF itself, instructions from `nvdisasm` (the package nvidia-cuda-nvdisasm).
Needs neither a GPU nor torch.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kwiki_kernels.errors import JudgeError
from kwiki_kernels.evaluation import StaticReport

Limit = Literal["registers", "shared memory", "threads", "CTAs"]

DISASSEMBLY_TIMEOUT_S = 30


class StaticReportError(JudgeError):
    """A cubin that cannot be read, or no tool to read it with."""


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


@dataclass
class _Kernel:
    registers: int = 0
    frame_bytes: int = 0
    threads: int | None = None
    static_smem_bytes: int = 0
    opcodes: list[str] = field(default_factory=list)
    """With modifiers, such as `LDG.E.128`."""


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
    kernels = _resources(cubin, SM_LIMITS[arch])
    for name, opcode in _instructions(_disassemble(cubin)):
        if name in kernels:
            kernels[name].opcodes.append(opcode)
    dynamic = dynamic_smem_bytes or {}
    return [
        _report(name, kernel, arch, dict(static_axes), dynamic.get(name, 0))
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
    name: str, kernel: _Kernel, arch: str, static_axes: dict[str, int], dynamic_smem_bytes: int
) -> StaticReport:
    limits = SM_LIMITS[arch]
    smem_bytes = kernel.static_smem_bytes + dynamic_smem_bytes
    threads = kernel.threads or 1024
    ctas, limit = occupancy(kernel.registers, smem_bytes, threads, limits)
    mix = Counter(opcode.split(".")[0] for opcode in kernel.opcodes)
    return StaticReport(
        arch=arch,
        kernel=name,
        static_axes=static_axes,
        registers=kernel.registers,
        spill_bytes=kernel.frame_bytes,
        local_loads=mix["LDL"],
        local_stores=mix["STL"],
        smem_bytes=smem_bytes,
        threads_per_cta=threads,
        ctas_per_sm=ctas,
        occupancy=ctas * _round_up(threads, 32) / limits.threads,
        occupancy_limit=limit,
        instructions=len(kernel.opcodes),
        instruction_mix=dict(mix.most_common()),
        global_load_bits=_widths(kernel.opcodes, ("LDG", "LDGSTS")),
        global_store_bits=_widths(kernel.opcodes, ("STG",)),
    )


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _widths(opcodes: list[str], families: tuple[str, ...]) -> dict[int, int]:
    """Access width in bits to count, for opcodes such as LDG.E.128, STG.E.U16 or LDG.E (32 bits)."""
    widths: Counter[int] = Counter()
    for opcode in opcodes:
        family, *modifiers = opcode.split(".")
        if family in families:
            sizes = [int(m.lstrip("US")) for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128|256)", m)]
            widths[sizes[-1] if sizes else 32] += 1
    return dict(sorted(widths.items()))


# The ELF of a cubin. Attributes of .nv.info are (format, attribute, 16-bit value or size, payload);
# their numbers are those that `readelf`-like tools print as EIATTR_*.
_REGCOUNT, _FRAME_SIZE, _MAX_THREADS, _REQNTID = 0x2F, 0x11, 0x05, 0x10
_PAYLOAD_FORMAT = 4


def _resources(cubin: bytes, limits: SMLimits) -> dict[str, _Kernel]:
    """Kernel name to what the ELF says about it; opcodes are still empty."""
    try:
        sections = dict(_sections(cubin))
        kernels = {name.removeprefix(".text."): _Kernel() for name in sections if name.startswith(".text.")}
        symbols = _symbol_names(sections[".symtab"], sections[".strtab"])
        for attribute, payload in _attributes(sections[".nv.info"]):
            if attribute in {_REGCOUNT, _FRAME_SIZE}:
                symbol, value = struct.unpack_from("<II", payload)
                if kernel := kernels.get(symbols[symbol]):
                    setattr(kernel, "registers" if attribute == _REGCOUNT else "frame_bytes", value)
        for name, kernel in kernels.items():
            for attribute, payload in _attributes(sections.get(f".nv.info.{name}", b"")):
                if attribute in {_MAX_THREADS, _REQNTID}:
                    x, y, z = struct.unpack_from("<III", payload)
                    kernel.threads = x * y * z
            if shared := sections.get(f".nv.shared.{name}"):
                kernel.static_smem_bytes = len(shared) - limits.smem_reserved_bytes
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise StaticReportError(f"this is not a cubin that can be read: {error!r}") from error
    # Device functions that are not kernels have no register count.
    return {name: kernel for name, kernel in kernels.items() if kernel.registers}


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    if elf[:4] != b"\x7fELF":
        raise ValueError("it does not start as an ELF file")
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names = headers[names_index][4]
    no_bits = 8
    for name, kind, _, _, offset, size in headers:
        content = bytes(size) if kind == no_bits else elf[offset : offset + size]
        yield _string(elf, names + name), content


def _symbol_names(symtab: bytes, strtab: bytes) -> list[str]:
    entry_size = 24
    offsets = (struct.unpack_from("<I", symtab, i)[0] for i in range(0, len(symtab), entry_size))
    return [_string(strtab, offset) for offset in offsets]


def _string(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(info):
        format_, attribute, size = struct.unpack_from("<BBH", info, position)
        position += 4
        if format_ == _PAYLOAD_FORMAT:
            yield attribute, info[position : position + size]
            position += size


def _disassemble(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            run = subprocess.run(
                [_nvdisasm(), "-c", file.name],
                capture_output=True,
                text=True,
                timeout=DISASSEMBLY_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StaticReportError(f"nvdisasm could not run: {error}") from error
    if run.returncode:
        raise StaticReportError(f"nvdisasm refused the cubin: {run.stderr.strip()[:300]}")
    return run.stdout


def _nvdisasm() -> str:
    """The tool of the installed package, else the one on PATH."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.stem == "nvdisasm" and file.parent.name == "bin":
            return str(Path(str(file.locate())))
    if found := shutil.which("nvdisasm"):
        return found
    raise StaticReportError("nvdisasm is not installed; pip install nvidia-cuda-nvdisasm")


def _instructions(disassembly: str) -> Iterator[tuple[str, str]]:
    """(kernel, opcode with modifiers) of every instruction but NOP, which only pads."""
    kernel = ""
    for line in disassembly.splitlines():
        if match := re.match(r"\s*\.section\s+\.text\.([^\s,\"]+)", line):
            kernel = match[1]
        elif match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?!NOP)([A-Z][\w.]*)", line):
            yield kernel, match[1]
