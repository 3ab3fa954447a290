"""The machine code of a cubin, instruction by instruction, as `nvdisasm` prints it."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kwiki_kernels.errors import StaticReportError

DISASSEMBLY_TIMEOUT_S = 30

TMEM_GRANULE_COLUMNS = 32
"""Tensor memory is allocated in units of this many columns; the instruction counts units."""
ALLOCATION = r"UTCATOMSWS(\.2CTA)?\.FIND_AND_SET\b"
"""The same columns in both CTAs of a pair, or in one alone."""

FEATURES = {
    "tcgen05.mma": r"UTC\w*MMA",
    "tcgen05.ld": r"LDTM",
    "tcgen05.st": r"STTM",
    "tcgen05.cp": r"UTCCP",
    "wgmma": r"[HQIB]GMMA",
    "mma.sync": r"[HQIOD]MMA",
    "tma.load": r"UTMALDG",
    "tma.store": r"UTMASTG",
    "tma.reduce": r"UTMAREDG",
    "bulk-copy": r"UBLK\w+",
    "cp.async": r"LDGSTS",
    "ldmatrix": r"LDSM",
    "stmatrix": r"STSM",
    "mbarrier": r"SYNCS",
}
"""What a kernel engineer calls it to the opcodes that do it."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction of a kernel."""

    kernel: str
    opcode: str
    """With modifiers, such as `LDG.E.128`."""
    operands: str
    line: str | None
    """File name and line, `kernel.py:12`, where the cubin carries line information."""

    @property
    def family(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.split(".", 1)[0]

    @property
    def is_spill(self) -> bool:
        """Whether the assembler put it there to save a register or get it back."""
        return "SpillRefill" in self.operands


def disassemble(cubin: bytes) -> Iterator[Instruction]:
    """Every instruction but NOP, which only pads.

    Raises:
        StaticReportError: nvdisasm is missing or refuses the cubin.
    """
    kernel, line = "", None
    for text in _nvdisasm_output(cubin).splitlines():
        if match := re.match(r"\s*\.section\s+\.text\.([^\s,\"]+)", text):
            kernel, line = match[1], None
        elif match := re.match(r"\s*//## File \"([^\"]+)\", line (\d+)", text):
            line = f"{Path(match[1]).name}:{match[2]}"
        elif match := re.match(
            r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?!NOP)([A-Z][\w.]*)\s*([^;]*);(.*)", text
        ):
            # What the assembler remarks stands before or after the semicolon.
            yield Instruction(kernel, match[1], (match[2] + match[3]).strip(), line)


def access_widths(code: Iterable[Instruction], families: tuple[str, ...]) -> dict[int, int]:
    """Access width in bits to count, for opcodes such as LDG.E.128, STS.U16 or LDS (32 bits)."""
    widths: Counter[int] = Counter()
    for instruction in code:
        if instruction.family in families:
            modifiers = instruction.opcode.split(".")[1:]
            sizes = [int(m.lstrip("US")) for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128|256)", m)]
            widths[sizes[-1] if sizes else 32] += 1
    return dict(sorted(widths.items()))


def features(code: Iterable[Instruction]) -> dict[str, int]:
    """Those of `FEATURES` that a kernel uses, with the static count of their instructions."""
    mix = Counter(instruction.family for instruction in code)
    counts = {
        name: sum(count for family, count in mix.items() if re.fullmatch(pattern, family))
        for name, pattern in FEATURES.items()
    }
    return {name: count for name, count in counts.items() if count}


def tmem_columns(code: Iterable[Instruction]) -> int | None:
    """Columns of the largest allocation of tensor memory; 0: none; None: one whose size is no constant."""
    constants: dict[str, int] = {}
    largest = 0
    for instruction in code:
        target, _, value = (part.strip() for part in instruction.operands.partition(","))
        if re.match(ALLOCATION, instruction.opcode):
            register = instruction.operands.split(",")[-1].strip()
            if register not in constants:
                return None
            largest = max(largest, constants[register] * TMEM_GRANULE_COLUMNS)
        if instruction.opcode == "UMOV" and re.fullmatch(r"0x[0-9a-f]+", value):
            constants[target] = int(value, 16)
        else:
            constants.pop(target, None)
    return largest


def _nvdisasm_output(cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            run = subprocess.run(
                [_nvdisasm(), "-c", "-g", file.name],
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
