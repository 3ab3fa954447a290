"""How fast WGMMA runs on operands that lie in shared memory, by shape, operand source, type and layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import BFloat16, Float8E4M3FN, Float32, Int32, cute
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "wgmma-n": "Which share of the tensor cores' peak does WGMMA reach by its N, from one warpgroup?",
    "wgmma-groups": "Does one warpgroup per SM saturate the tensor cores, or does it take two?",
    "wgmma-operand-a": "Does reading A from registers instead of shared memory make WGMMA faster?",
    "wgmma-fp8": "Does fp8 double the rate of bfloat16?",
    "wgmma-swizzle": "Does the swizzle of the operands matter for the rate?",
    "wgmma-major": "Does a B that is contiguous along N run as fast as one contiguous along K?",
    "wgmma-latency": "How long does one WGMMA take from issue to the end of its wait?",
    "wgmma-wait": "What does waiting for each tile of K cost against leaving one group in flight?",
    "wgmma-power": "Does the clock hold when all tensor cores work, and does the data matter?",
}
K_TILE = {BFloat16: 64, Float8E4M3FN: 128}
LOOPS = 256
LAYOUTS = warpgroup.SmemLayoutAtomKind


@dataclass(frozen=True)
class Products:
    """`groups` warpgroups multiply 64 rows each by the same B, over and over."""

    n: int = 256
    groups: int = 1
    dtype: type = BFloat16
    registers: bool = False
    layout: str = "SW128"
    b_major: str = "K"
    in_flight: int = 1
    k_blocks: int = 4

    @cute.jit
    def __call__(
        self, data: cute.Pointer, sums: cute.Pointer, cycles: cute.Pointer, ctas: Int32, loops: Int32,
        stream: cuda.CUstream,
    ):  # fmt: skip
        source = warpgroup.OperandSource.RMEM if self.registers else warpgroup.OperandSource.SMEM
        b_major = OperandMajorMode.K if self.b_major == "K" else OperandMajorMode.MN
        tiled_mma = sm90.make_trivial_tiled_mma(
            self.dtype, self.dtype, OperandMajorMode.K, b_major, Float32, (self.groups, 1, 1), (64, self.n),
            source,
        )  # fmt: skip
        k = K_TILE[self.dtype]
        a_atom = warpgroup.make_smem_layout_atom(LAYOUTS[f"K_{self.layout}"], self.dtype)
        b_atom = warpgroup.make_smem_layout_atom(LAYOUTS[f"{self.b_major}_{self.layout}"], self.dtype)
        a_layout = cute.tile_to_shape(a_atom, (64 * self.groups, k), order=(0, 1))
        b_layout = cute.tile_to_shape(b_atom, (self.n, k), order=(0, 1) if self.b_major == "K" else (1, 0))
        self.kernel(data, sums, cycles, loops, tiled_mma, a_layout, b_layout).launch(
            grid=[ctas, 1, 1], block=[128 * self.groups, 1, 1], min_blocks_per_mp=1, stream=stream
        )

    @cute.kernel
    def kernel(
        self, data: cute.Pointer, sums: cute.Pointer, cycles: cute.Pointer, loops: Int32,
        tiled_mma: cute.TiledMma, a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
    ):  # fmt: skip
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        smem = cutlass.memory.SmemAllocator()
        sA = smem.allocate_tensor(self.dtype, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
        sB = smem.allocate_tensor(self.dtype, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
        # Both operands are filled word by word: what stands where does not matter here.
        mData = cute.make_tensor(data, cute.make_layout(1 << 15))
        for tensor in (sA, sB):
            words = cute.make_tensor(
                cute.recast_ptr(tensor.iterator, dtype=Int32),
                cute.make_layout(cute.size_in_bytes(self.dtype, tensor.layout) // 4),
            )
            for i in cutlass.range(tidx, cute.size(words), 128 * self.groups):
                words[i] = mData[i]
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.sync_threads()

        thr_mma = tiled_mma.get_slice(tidx)
        tCsA, tCsB = thr_mma.partition_A(sA), thr_mma.partition_B(sB)
        tCrA, tCrB = tiled_mma.make_fragment_A(tCsA), tiled_mma.make_fragment_B(tCsB)
        if cutlass.const_expr(self.registers):
            cute.autovec_copy(tCsA, tCrA)
        acc = cute.make_rmem_tensor(tiled_mma.partition_shape_C((64 * self.groups, self.n)), Float32)
        acc.fill(0.0)
        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
        start = cute.arch.clock()
        for _ in cutlass.range(loops, unroll=1):
            warpgroup.fence()
            for k_block in cutlass.range_constexpr(self.k_blocks):
                cute.gemm(tiled_mma, acc, tCrA[None, None, k_block], tCrB[None, None, k_block], acc)
            warpgroup.commit_group()
            warpgroup.wait_group(self.in_flight)
        warpgroup.wait_group(0)
        elapsed = cute.arch.clock() - start
        thread = bidx * 128 * self.groups + tidx
        total = acc.load().reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
        cute.make_tensor(sums, cute.make_layout(1 << 20))[thread] = total
        cute.make_tensor(cycles, cute.make_layout(1 << 20))[thread] = elapsed


BASE = Products()
CASES = [
    *(("wgmma-n", replace(BASE, n=n)) for n in (8, 16, 32, 64, 96, 128, 192, 256)),
    *(("wgmma-groups", replace(BASE, n=n, groups=groups)) for n in (64, 128, 256) for groups in (1, 2)),
    *(
        ("wgmma-operand-a", replace(BASE, n=n, registers=registers))
        for n in (8, 16, 32, 64, 256)
        for registers in (False, True)
    ),
    *(
        ("wgmma-fp8", replace(BASE, n=n, groups=2, dtype=t))
        for n in (128, 256)
        for t in (BFloat16, Float8E4M3FN)
    ),
    *(("wgmma-swizzle", replace(BASE, groups=2, layout=s)) for s in ("INTER", "SW32", "SW64", "SW128")),
    *(("wgmma-major", replace(BASE, groups=2, b_major=m)) for m in ("K", "MN")),
    *(("wgmma-latency", replace(BASE, n=n, in_flight=0, k_blocks=1)) for n in (8, 64, 128, 256)),
    *(("wgmma-wait", replace(BASE, groups=g, in_flight=f)) for g in (1, 2) for f in (0, 1)),
]


def compile_kernels() -> dict[Products, Kernel]:
    products = {product for _, product in CASES}
    return {product: Kernel(product, Int32, Float32, Int32, 1, 1) for product in products}


def measure(kernels: dict[Products, Kernel], bench: Bench) -> None:
    sums = torch.zeros(1 << 20, device="cuda")
    cycles = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count
    zeros = torch.zeros(1 << 15, dtype=torch.int32, device="cuda")
    for claim, product in CASES:
        threads = 128 * product.groups
        call = partial(kernels[product], zeros, sums, cycles, sms, LOOPS)
        samples = bench.samples(call, cycles[:threads])
        k = K_TILE[product.dtype] // 4  # of one instruction
        flops = 2 * 64 * product.groups * product.n * k * product.k_blocks * LOOPS
        setting = {
            "n": product.n, "warpgroups": product.groups, "dtype": product.dtype.__name__,
            "a": "registers" if product.registers else "shared memory", "layout": product.layout,
            "b_major": product.b_major, "groups_in_flight": product.in_flight, "k_blocks": product.k_blocks,
        }  # fmt: skip
        bench.report(
            claim,
            setting,
            flop_per_clock_per_sm=[flops / sample for sample in samples],
            instruction_cycles=[sample / (LOOPS * product.k_blocks) for sample in samples],
        )
    product, loops = replace(BASE, groups=2), 20_000
    normal = torch.randn(1 << 16, device="cuda").to(torch.bfloat16).view(torch.int32)
    small = (torch.randint(0, 3, (1 << 16,), device="cuda") - 1).to(torch.bfloat16).view(torch.int32)
    inputs = {"zeros": zeros, "-1, 0 or 1": small, "normal": normal}
    calls = {name: partial(kernels[product], data, sums, cycles, sms, loops) for name, data in inputs.items()}
    samples_us = bench.compare_us(calls, cold_l2=False, iterations=20, rounds=4)
    flops = 2 * 64 * product.groups * product.n * 16 * 4 * loops * sms
    kernel_cycles = float(cycles[: 128 * product.groups].double().mean())  # the same for all data
    for name, samples in samples_us.items():
        bench.report(
            "wgmma-power",
            {"data": name, "kernel": "20000 tiles of K on all SMs, 20 times in a row, 4 rounds"},
            tflops=[flops / us / 1e6 for us in samples],
            sm_clock_mhz=[kernel_cycles / us for us in samples],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
