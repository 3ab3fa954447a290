"""The few functions of CUDA's driver that torch does not offer."""

from __future__ import annotations

import contextlib
import ctypes
import functools


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle: what another process needs to map a block of device memory."""

    _fields_ = [("reserved", ctypes.c_byte * 64)]


def load() -> None:
    """Initialise the driver, without a context; what goes wrong here goes wrong again when one is made."""
    with contextlib.suppress(OSError):
        call("cuInit", ctypes.c_uint(0))


def call(name: str, *arguments: object) -> None:
    """Call one function.

    Raises:
        OSError: it failed, or this driver does not have it.
    """
    function = getattr(_library(), name, None)
    if function is None:
        raise OSError(f"this driver has no {name}")
    if code := function(*arguments):
        raise OSError(f"{name} answered {code}")


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    # A structure by value is passed right only where the signature is known.
    library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, IpcHandle, ctypes.c_uint]
    return library
