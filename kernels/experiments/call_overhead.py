"""What a call costs the host, by how the kernel is called, and what compiling costs before."""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream
from gemm_bench import compile_gemms
from hopper_gemm import Gemm
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "call-jit": "What does calling a @cute.jit function directly cost, each time?",
    "call-compiled": "What does calling a compiled function cost with tensors converted beforehand?",
    "call-from-dlpack": "What does converting two torch tensors for each call add?",
    "call-pointers": "Are pointers and integers cheaper to pass than tensors?",
    "call-packed": "What is left if the arguments are packed by hand with ctypes?",
    "call-tvm-ffi": "What does a call through TVM-FFI with torch tensors cost?",
    "call-torch": "What does an operator of torch with a given output cost, for comparison?",
    "call-graph": "What does replaying a CUDA graph of one kernel cost the host?",
    "compile-small": "How long does an elementwise kernel take to compile?",
    "compile-gemm": "How long does a warp-specialised GEMM take to compile?",
    "compile-first-call": "What does the first call of a compiled kernel cost, which loads it?",
}
ELEMENTS, THREADS, CALLS = 1024, 256, 200


@cute.kernel
def scale_kernel(mX: cute.Tensor, mY: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    at = bidx * THREADS + tidx
    mY[at] = mX[at] * 2.0


@cute.jit
def scale(mX: cute.Tensor, mY: cute.Tensor, stream: cuda.CUstream):
    scale_kernel(mX, mY).launch(grid=[cute.size(mX) // THREADS, 1, 1], block=[THREADS, 1, 1], stream=stream)


@cute.jit
def scale_pointers(x: cute.Pointer, y: cute.Pointer, elements: cutlass.Int32, stream: cuda.CUstream):
    layout = cute.make_layout(elements)
    scale(cute.make_tensor(x, layout), cute.make_tensor(y, layout), stream)


def fakes() -> tuple[Any, Any]:
    """Stand for any two vectors of the same length."""
    n = cute.sym_int(divisibility=THREADS)
    return make_fake_compact_tensor(Float32, (n,)), make_fake_compact_tensor(Float32, (n,))


def convert(vector: torch.Tensor) -> Any:
    """As the compiled function takes it: without the mark, its length would not be passed."""
    return from_dlpack(vector).mark_compact_shape_dynamic(0, divisibility=THREADS)


def compile_kernels() -> dict[str, Any]:
    """The functions to call; the one through TVM-FFI only where that package is."""
    kernels: dict[str, Any] = {
        "tensors": cute.compile(scale, *fakes(), make_fake_stream()),
        "pointers": Kernel(scale_pointers, Float32, Float32, 1),
    }
    if importlib.util.find_spec("tvm_ffi"):
        stream = make_fake_stream(use_tvm_ffi_env_stream=True)
        kernels["tvm-ffi"] = cute.compile(scale, *fakes(), stream, options="--enable-tvm-ffi")
    return kernels


def milliseconds(work: Callable[[], Any], repeats: int) -> list[float]:
    samples = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        work()
        samples.append((time.perf_counter_ns() - start) / 1e6)
    return samples


def host_us(call: Callable[[], Any], rounds: int = 20, calls: int = CALLS) -> list[float]:
    """Time until a call returns, mean of `calls` in a row: fewer than the GPU's queue holds."""
    samples = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter_ns() - start) / 1e3 / calls)
    torch.cuda.synchronize()
    return samples[1:]


def measure(kernels: dict[str, Any], bench: Bench) -> None:
    x, y = (torch.zeros(ELEMENTS, device="cuda") for _ in range(2))
    handle = torch.cuda.current_stream().cuda_stream
    stream = cuda.CUstream(handle)
    compiled, pointers = kernels["tensors"], kernels["pointers"]

    mX, mY = convert(x), convert(y)
    first = milliseconds(partial(compiled, mX, mY, stream), 1)
    torch.cuda.synchronize()
    bench.report("compile-first-call", {"kernel": "elementwise"}, first_call_ms=first)

    values = [ctypes.c_void_p(value) for value in (x.data_ptr(), y.data_ptr(), handle)]
    values.insert(2, ctypes.c_int32(ELEMENTS))
    packed = [ctypes.addressof(value) for value in values]
    pointer_arguments = [cute.runtime.make_ptr(Float32, t.data_ptr(), cute.AddressSpace.gmem) for t in (x, y)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(x, 2.0, out=y)
    calls: dict[str, Callable[[], Any]] = {
        "call-compiled": partial(compiled, mX, mY, stream),
        "call-from-dlpack": lambda: compiled(convert(x), convert(y), stream),
        "call-pointers": partial(pointers.compiled, *pointer_arguments, cutlass.Int32(ELEMENTS), stream),
        "call-packed": partial(pointers.compiled.run_compiled_program, packed),
        "call-torch": partial(torch.mul, x, 2.0, out=y),
        "call-graph": graph.replay,
    }
    if "tvm-ffi" in kernels:
        calls["call-tvm-ffi"] = partial(kernels["tvm-ffi"], x, y)
    x.fill_(3.0)
    for claim, call in calls.items():
        y.zero_()
        call()
        if not torch.all(y == 6.0):
            raise RuntimeError(f"{claim}: the call did not double its input")
        bench.report(claim, {"elements": ELEMENTS, "calls_in_a_row": CALLS}, host_us=host_us(call))
    direct = host_us(partial(scale, mX, mY, stream), rounds=5, calls=10)
    bench.report("call-jit", {"elements": ELEMENTS, "calls_in_a_row": 10}, host_us=direct)

    small = milliseconds(lambda: cute.compile(scale, *fakes(), make_fake_stream()), 7)
    bench.report("compile-small", {"kernel": "elementwise"}, compile_ms=small[2:])
    gemm = milliseconds(lambda: compile_gemms([Gemm()]), 5)
    bench.report("compile-gemm", {"kernel": "GEMM of 128 x 256 x 64, 4 stages"}, compile_ms=gemm[2:])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
