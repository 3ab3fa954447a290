"""Memory that two processes share: the examiner fills and reads it, a candidate computes in it.

On a GPU a block of device memory, mapped by CUDA's IPC; on the CPU a file in the candidate's folder.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch

from kwiki_kernels import driver
from kwiki_kernels.definition import Definition
from kwiki_kernels.messages import Placement, Scalar, Slot

ALIGNMENT = 512
"""Bytes; as torch's own allocator has it."""
PAGE_BYTES = 2 << 20
"""Device memory is asked for in whole large pages. A large block of another size is slow in the process that
opens it, as if it were mapped in small ones: H200, driver 580, 2026-11-30, an elementwise kernel over
896 MiB reached 4,204 GB/s, and 2,138 with 14 KiB more."""
LAZY_PEER_ACCESS = 1
"""The one flag that cuIpcOpenMemHandle takes."""


class Arena(Protocol):
    """A block of bytes."""

    @property
    def handle(self) -> str:
        """What the other process opens it by."""
        ...

    def bytes_at(self, offset: int, size: int) -> torch.Tensor:
        """A tensor of uint8 over a stretch of it."""
        ...

    def close(self) -> None:
        """Give the block back; no tensor over it may be used any more."""
        ...


class FileArena:
    """A file, mapped."""

    def __init__(self, path: Path, size: int, *, create: bool) -> None:
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        try:
            if create:
                os.truncate(fd, size)
            self.map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.created = create

    @property
    def handle(self) -> str:
        """The file's name, as the candidate's process sees its own folder."""
        return self.path.name

    def bytes_at(self, offset: int, size: int) -> torch.Tensor:
        """A tensor of uint8 over a stretch of it."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.map, dtype=torch.uint8, count=size, offset=offset)

    def close(self) -> None:
        """The pages go with the last tensor over them."""
        if self.created:
            self.path.unlink(missing_ok=True)


class DeviceArena:
    """A block of device memory, allocated here or, by its handle, in another process."""

    def __init__(self, *, size: int = 0, handle: str = "") -> None:
        self.address = ctypes.c_uint64()
        self.theirs = bool(handle)
        if handle:
            opened = driver.IpcHandle.from_buffer_copy(bytes.fromhex(handle))
            driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(self.address), opened, LAZY_PEER_ACCESS)
        else:
            whole = -(-size // PAGE_BYTES) * PAGE_BYTES
            driver.call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(whole))

    @property
    def handle(self) -> str:
        """CUDA's handle, in hex."""
        handle = driver.IpcHandle()
        driver.call("cuIpcGetMemHandle", ctypes.byref(handle), self.address)
        return bytes(handle).hex()

    def bytes_at(self, offset: int, size: int) -> torch.Tensor:
        """A tensor of uint8 over a stretch of it."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8, device="cuda")
        return torch.as_tensor(_Stretch(self.address.value + offset, size), device="cuda")

    def close(self) -> None:
        """Unmap or free the block."""
        driver.call("cuIpcCloseMemHandle" if self.theirs else "cuMemFree_v2", self.address)


class _Stretch:
    """Device memory, as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3
        }  # fmt: skip


def plan(inputs: Iterable[Any], definition: Definition, axes: dict[str, int]) -> Placement:
    """Where inputs like these and the definition's outputs stand in an arena that has no handle yet."""
    size = 0
    places: list[Slot | Scalar] = []

    def slot(shape: tuple[int, ...], dtype: torch.dtype) -> Slot:
        nonlocal size
        offset = size
        size += -(-dtype.itemsize * _count(shape) // ALIGNMENT) * ALIGNMENT
        return Slot(shape=shape, dtype=str(dtype).removeprefix("torch."), offset=offset)

    for value in inputs:
        tensor = isinstance(value, torch.Tensor)
        places.append(slot(tuple(value.shape), value.dtype) if tensor else Scalar(value=value))
    outputs = tuple(
        slot(tuple(axes[axis] for axis in spec.shape or ()), getattr(torch, spec.dtype))
        for spec in definition.outputs.values()
    )
    return Placement(size=max(size, ALIGNMENT), inputs=tuple(places), outputs=outputs)


def values_in(arena: Arena, places: Iterable[Slot | Scalar]) -> list[Any]:
    """Tensors over the arena, and the numbers among them."""
    return [place.value if isinstance(place, Scalar) else _tensor(arena, place) for place in places]


def _tensor(arena: Arena, slot: Slot) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, slot.dtype)
    stretch = arena.bytes_at(slot.offset, dtype.itemsize * _count(slot.shape))
    return stretch.view(dtype).view(slot.shape)


def _count(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
