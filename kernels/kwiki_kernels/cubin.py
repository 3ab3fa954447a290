"""What the ELF image of a cubin says about its kernels: registers, stack frame, threads, shared memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kwiki_kernels.errors import StaticReportError


@dataclass
class Resources:
    """Of one kernel."""

    registers: int = 0
    """Per thread."""
    frame_bytes: int = 0
    """Stack frame per thread: spills, and arrays that are indexed at run time."""
    threads: int | None = None
    """Per CTA; None where the launch alone decides."""
    static_smem_bytes: int = 0


def resources(cubin: bytes, *, smem_reserved_bytes: int) -> dict[str, Resources]:
    """Kernel name to what the ELF says about it.

    Args:
        cubin: the ELF image.
        smem_reserved_bytes: the system's share of a CTA's shared memory, which the linker counts in.

    Raises:
        StaticReportError: it is not a cubin that can be read.
    """
    try:
        sections = dict(_sections(cubin))
        kernels = {name.removeprefix(".text."): Resources() for name in sections if name.startswith(".text.")}
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
                kernel.static_smem_bytes = len(shared) - smem_reserved_bytes
    except (struct.error, KeyError, IndexError, ValueError) as error:
        raise StaticReportError(f"this is not a cubin that can be read: {error!r}") from error
    # Device functions that are not kernels have no register count.
    return {name: kernel for name, kernel in kernels.items() if kernel.registers}


# Attributes of .nv.info are (format, attribute, 16-bit value or size, payload); their numbers are those
# that `readelf`-like tools print as EIATTR_*.
_REGCOUNT, _FRAME_SIZE, _MAX_THREADS, _REQNTID = 0x2F, 0x11, 0x05, 0x10
_PAYLOAD_FORMAT = 4


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
