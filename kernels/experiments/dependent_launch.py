"""What programmatic dependent launch gains in a chain of small kernels, each reading the output before."""

from __future__ import annotations

from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Float32, Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "pdl-attribute": "What does the launch attribute alone gain, with a wait but without an early trigger?",
    "pdl-trigger": "What does an early trigger add?",
    "pdl-prologue": "What does moving the loads of a weight before the wait add?",
    "pdl-size": "Up to which kernel size does dependent launch matter?",
}
LINKS, THREADS = 20, 256
SIZES = (1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)


@cute.kernel
def link(
    x: cute.Pointer,
    weight: cute.Pointer,
    y: cute.Pointer,
    trigger: cutlass.Constexpr,
    early: cutlass.Constexpr,
    wait: cutlass.Constexpr,
):
    """y = x * weight: the weight is no output of a kernel, x is the output of the one before."""
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    layout = cute.make_layout((4, ctas * THREADS))
    mX, mW, mY = (cute.make_tensor(pointer, layout) for pointer in (x, weight, y))
    at = (None, bidx * THREADS + tidx)
    if cutlass.const_expr(trigger):
        cute.arch.griddepcontrol_launch_dependents()
    factors = cute.make_rmem_tensor(4, Float32)
    if cutlass.const_expr(early):
        cute.autovec_copy(mW[at], factors)
    if cutlass.const_expr(wait):
        cute.arch.griddepcontrol_wait()
    if cutlass.const_expr(not early):
        cute.autovec_copy(mW[at], factors)
    values = cute.make_rmem_tensor(4, Float32)
    cute.autovec_copy(mX[at], values)
    values.store(values.load() * factors.load())
    cute.autovec_copy(values, mY[at])


@cute.jit
def chain(
    x: cute.Pointer,
    weight: cute.Pointer,
    y: cute.Pointer,
    elements: Int32,
    stream: cuda.CUstream,
    pdl: cutlass.Constexpr,
    trigger: cutlass.Constexpr,
    early: cutlass.Constexpr,
):
    """Twenty kernels to and fro between x and y."""
    for i in cutlass.range_constexpr(LINKS):
        source, target = (x, y) if cutlass.const_expr(i % 2 == 0) else (y, x)
        link(source, weight, target, trigger, early, pdl).launch(
            grid=[elements // (4 * THREADS), 1, 1], block=[THREADS, 1, 1], stream=stream, use_pdl=pdl
        )


VARIANTS = {
    "plain": (False, False, False),
    "attribute": (True, False, False),
    "trigger": (True, True, False),
    "trigger, early weight": (True, True, True),
    "attribute, early weight": (True, False, True),
}


def compile_kernels() -> dict[str, Kernel]:
    return {
        name: Kernel(chain, Float32, Float32, Float32, 1, pdl=pdl, trigger=trigger, early=early)
        for name, (pdl, trigger, early) in VARIANTS.items()
    }


def measure(kernels: dict[str, Kernel], bench: Bench) -> None:
    def report(claim: str, names: tuple[str, ...], elements: int) -> None:
        calls = {}
        for name in names:
            x, weight, y = (torch.full((elements,), value, device="cuda") for value in (1.0, 2.0, 0.0))
            kernels[name](x, weight, y, elements)
            if not torch.all(x == 2.0**LINKS):
                raise RuntimeError(f"the chain '{name}' computed wrong values: its times are worthless")
            x.fill_(1.0)
            weight.fill_(1.0)
            calls[name] = partial(kernels[name], x, weight, y, elements)
        for name, samples in bench.compare_nodes_us(calls, repeats=2).items():
            setting = {"variant": name, "elements": elements}
            bench.report(claim, setting, link_us=[us / LINKS for us in samples])

    for claim, names in (
        ("pdl-attribute", ("plain", "attribute")),
        ("pdl-trigger", ("attribute", "trigger")),
        ("pdl-prologue", ("attribute", "attribute, early weight", "trigger", "trigger, early weight")),
    ):
        report(claim, names, 1 << 18)
    for elements in SIZES:
        report("pdl-size", ("plain", "attribute", "trigger, early weight"), elements)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
