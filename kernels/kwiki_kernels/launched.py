"""The names of the kernels that a call launches: read from a CUDA graph of it, else from CUPTI.

A graph is read in a millisecond; the first trace of a process takes CUPTI more than a second.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kwiki_kernels import cupti, driver

KERNEL, CHILD_GRAPH = 0, 4
"""Types of nodes, by the numbers of CUDA's driver."""


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2; a kernel has a `function` or, from a library, a `kernel`."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


def kernel_names(call: Callable[[], Any], *, capturable: bool) -> list[str]:
    """The kernels that one call launches, C++ names mangled or not; copies and fills are none."""
    if capturable:
        try:
            graph = torch.cuda.CUDAGraph(keep_graph=True)
            with torch.cuda.graph(graph):
                call()
            return list(_names(graph.raw_cuda_graph()))
        except (AttributeError, OSError, TypeError):  # a torch or driver that does not tell
            torch.cuda.synchronize()
    return cupti.kernel_names(call)


def _names(graph: int) -> Iterator[str]:
    count = ctypes.c_size_t()
    driver.call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    driver.call("cuGraphGetNodes", ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    for node in nodes:
        kind = ctypes.c_int()
        driver.call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        if kind.value == CHILD_GRAPH:
            raise OSError("a graph within the graph")
        if kind.value == KERNEL:
            yield _name(ctypes.c_void_p(node))


def _name(node: ctypes.c_void_p) -> str:
    parameters, name = _KernelNode(), ctypes.c_char_p()
    driver.call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(parameters))
    if parameters.function:
        driver.call("cuFuncGetName", ctypes.byref(name), ctypes.c_void_p(parameters.function))
    else:
        driver.call("cuKernelGetName", ctypes.byref(name), ctypes.c_void_p(parameters.kernel))
    return (name.value or b"").decode()
