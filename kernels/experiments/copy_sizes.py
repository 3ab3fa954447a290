"""How much of the bandwidth a copy reaches, by its size, and how its grid should be shaped."""

from __future__ import annotations

from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "copy-size-cold": "How large must a copy be to reach 90 % of the bandwidth of a large one, cold L2?",
    "copy-size-warm": "How fast are copies whose data lies in L2 already?",
    "copy-floor": "How long does the smallest copy take, and the timer alone?",
    "copy-grid": "Is a copy faster with one vector per thread or with a persistent grid?",
}
THREADS = 256
SIZES = tuple(1 << power for power in range(12, 31, 2))


@cute.kernel
def copy_kernel(x: cute.Pointer, y: cute.Pointer, vectors: Int32, unroll: cutlass.Constexpr):
    tidx, _, _ = cute.arch.thread_idx()
    bidx, _, _ = cute.arch.block_idx()
    ctas, _, _ = cute.arch.grid_dim()
    layout = cute.make_layout((4, vectors))
    mX, mY = cute.make_tensor(x, layout), cute.make_tensor(y, layout)
    values = cute.make_rmem_tensor(4, Int32)
    for at in cutlass.range(bidx * THREADS + tidx, vectors, ctas * THREADS, unroll=unroll):
        cute.autovec_copy(mX[None, at], values)
        cute.autovec_copy(values, mY[None, at])


@cute.jit
def copy(
    x: cute.Pointer,
    y: cute.Pointer,
    vectors: Int32,
    ctas: Int32,
    stream: cuda.CUstream,
    unroll: cutlass.Constexpr,
):
    copy_kernel(x, y, vectors, unroll).launch(grid=[ctas, 1, 1], block=[THREADS, 1, 1], stream=stream)


def compile_kernels() -> dict[int, Kernel]:
    return {unroll: Kernel(copy, Int32, Int32, 1, 1, unroll=unroll) for unroll in (1, 4)}


def measure(kernels: dict[int, Kernel], bench: Bench) -> None:
    x = torch.randint(-(1 << 31), 1 << 31, (1 << 28,), dtype=torch.int32, device="cuda")
    y = torch.zeros_like(x)
    sms = torch.cuda.get_device_properties().multi_processor_count

    def report(claim: str, size: int, ctas: int, unroll: int, *, cold_l2: bool, grid: str) -> None:
        call = partial(kernels[unroll], x, y, size // 16, ctas)
        call()
        if not torch.equal(x[: size // 4], y[: size // 4]):
            raise RuntimeError(f"{claim}: the copy differs; its times are worthless")
        samples = bench.time_us(call, cold_l2=cold_l2, iterations=20)
        setting = {"bytes": size, "cold_l2": cold_l2, "grid": grid, "ctas": ctas}
        gbps = [2 * size / us / 1e3 for us in samples]
        bench.report(claim, setting, kernel_us=samples, read_and_write_gbps=gbps)

    for size in SIZES:
        ctas = max(1, size // (16 * THREADS))
        report("copy-size-cold", size, ctas, 1, cold_l2=True, grid="one vector per thread")
        if size <= 1 << 24:
            report("copy-size-warm", size, ctas, 1, cold_l2=False, grid="one vector per thread")
    for cold_l2 in (True, False):
        report("copy-floor", 4096, 1, 1, cold_l2=cold_l2, grid="one CTA")
        floor = bench.time_us(partial(torch.cuda._sleep, 0), cold_l2=cold_l2)
        bench.report("copy-floor", {"kernel": "waits for 0 cycles", "cold_l2": cold_l2}, kernel_us=floor)
    for size in (1 << 24, 1 << 30):
        report("copy-grid", size, size // (16 * THREADS), 1, cold_l2=True, grid="one vector per thread")
        for per_sm in (2, 4, 8):
            report("copy-grid", size, per_sm * sms, 4, cold_l2=True, grid=f"persistent, {per_sm} per SM")


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
