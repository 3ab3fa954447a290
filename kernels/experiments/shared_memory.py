"""What bank conflicts cost, and how wide accesses must be to use all of shared memory's bandwidth."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, cute
from kwiki_kernels.experiment import Bench, Kernel, main

CLAIMS = {
    "smem-conflicts": "By how much does a 32-bit load slow down with the stride between lanes?",
    "smem-broadcast": "Is it a conflict when lanes read the same word?",
    "smem-width": "How wide must a shared memory load be to reach 128 bytes per clock?",
    "smem-store-width": "How wide must a shared memory store be?",
    "smem-column": "What does reading a column of 16-byte chunks from rows of 128 bytes cost, unswizzled?",
    "smem-swizzle": "Does the 128-byte swizzle make that column free of conflicts?",
    "smem-padding": "Does padding rows by 16 bytes do the same?",
    "smem-ldmatrix": "Is ldmatrix faster than plain loads of the same bytes?",
    "smem-ldmatrix-conflicts": "What does ldmatrix cost over rows of 128 bytes without a swizzle?",
    "smem-stmatrix": "Is stmatrix faster than plain stores of the pieces an accumulator holds?",
}
LOOPS, BODY, WARPS = 128, 8, 16
STEP_BYTES, SMEM_BYTES = 4096, 40960
# volatile, or the assembler merges accesses
LOADS = {
    4: "ld.volatile.shared.b32 {$w0}, [{$r0}];",
    8: "{ .reg .b32 x; ld.volatile.shared.v2.b32 {{$w0}, x}, [{$r0}]; }",
    16: "{ .reg .b32 x, y, z; ld.volatile.shared.v4.b32 {{$w0}, x, y, z}, [{$r0}]; }",
}
STORES = {
    4: "st.volatile.shared.b32 [{$r0}], {$r1};",
    8: "st.volatile.shared.v2.b32 [{$r0}], {{$r1}, {$r1}};",
    16: "st.volatile.shared.v4.b32 [{$r0}], {{$r1}, {$r1}, {$r1}, {$r1}};",
}
LDMATRIX = "{ .reg .b32 x, y, z; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{$w0}, x, y, z}, [{$r0}]; }"
STMATRIX = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [{$r0}], {{$r1}, {$r1}, {$r1}, {$r1}};"


def strided(words: int):
    """Lane after lane, `words` 32-bit words apart."""
    return lambda lane: lane * words * 4


def column(row_bytes: int = 128, *, swizzled: bool = False):
    """Each lane reads the same 16-byte chunk of its own row, swizzled like CuTe's Swizzle(3, 4, 3)."""
    return lambda lane: lane * row_bytes + ((lane & 7) * 16 if swizzled else 0)


# claim, how it is called, instruction, bytes per lane, address of a lane
CASES = [
    *(("smem-conflicts", f"stride {s} words", LOADS[4], 4, strided(s)) for s in (1, 2, 4, 8, 16, 32, 33)),
    ("smem-broadcast", "one word for all", LOADS[4], 4, lambda lane: lane * 0),
    ("smem-broadcast", "two words of one bank", LOADS[4], 4, lambda lane: (lane & 1) * 128),
    *(("smem-width", f"{8 * w} bits", LOADS[w], w, strided(w // 4)) for w in LOADS),
    *(("smem-store-width", f"{8 * w} bits", STORES[w], w, strided(w // 4)) for w in STORES),
    ("smem-column", "rows of 128 bytes", LOADS[16], 16, column()),
    ("smem-swizzle", "rows of 128 bytes, swizzled", LOADS[16], 16, column(swizzled=True)),
    ("smem-padding", "rows of 144 bytes", LOADS[16], 16, column(144)),
    ("smem-ldmatrix", "ldmatrix x4, swizzled", LDMATRIX, 16, column(swizzled=True)),
    ("smem-ldmatrix", "four 32-bit loads", LOADS[4], 4, strided(1)),
    ("smem-ldmatrix-conflicts", "ldmatrix x4, rows of 128 bytes", LDMATRIX, 16, column()),
    ("smem-stmatrix", "stmatrix x4, swizzled", STMATRIX, 16, column(swizzled=True)),
    # An accumulator holds two neighbours of a row: eight rows and four lanes a row for each store.
    (
        "smem-stmatrix",
        "32-bit stores of accumulator pairs, swizzled",
        STORES[4],
        4,
        lambda lane: (lane // 4) * 128 + ((lane // 4) & 7) * 16 + (lane % 4) * 4,
    ),
]


@cute.kernel
def access(cycles: cute.Pointer, loops: Int32, ptx: cutlass.Constexpr, case: cutlass.Constexpr):
    """All warps repeat the access at addresses of their own; nothing waits for a result inside a body."""
    tidx, _, _ = cute.arch.thread_idx()
    sData = cutlass.memory.SmemAllocator().allocate_tensor(Int32, cute.make_layout(SMEM_BYTES // 4), 1024)
    for i in cutlass.range(tidx, SMEM_BYTES // 4, 32 * WARPS):
        sData[i] = i
    lane = tidx % 32
    address = Int32(sData.iterator.toint()) + CASES[case][4](lane)
    stores = cutlass.const_expr("st" in ptx.split(".")[0])
    value = tidx
    cute.arch.sync_threads()
    start = cute.arch.clock()
    for i in cutlass.range(loops, unroll=1):
        for j in cutlass.range_constexpr(BODY):
            at = address + (i & 1) * 1024 + j * STEP_BYTES  # a place of its own, so that none is left out
            if cutlass.const_expr(stores):
                cute.arch.inline_ptx(ptx, read_only_args=[at, value])
            else:
                value += cute.arch.inline_ptx(ptx, write_only_types=[Int32], read_only_args=[at])
    end = cute.arch.clock()
    result = cute.make_tensor(cycles, cute.make_layout((3, WARPS), stride=(WARPS, 1)))
    result[2, tidx // 32] = value
    result[0, tidx // 32] = start
    result[1, tidx // 32] = end


@cute.jit
def run(
    cycles: cute.Pointer,
    loops: Int32,
    stream: cuda.CUstream,
    ptx: cutlass.Constexpr,
    case: cutlass.Constexpr,
):
    access(cycles, loops, ptx, case).launch(grid=[1, 1, 1], block=[32 * WARPS, 1, 1], stream=stream)


def compile_kernels() -> list[Kernel]:
    return [Kernel(run, Int32, 1, ptx=ptx, case=case) for case, (_, _, ptx, _, _) in enumerate(CASES)]


def measure(kernels: list[Kernel], bench: Bench) -> None:
    clocks = torch.zeros(3, WARPS, dtype=torch.int32, device="cuda")
    for kernel, (claim, name, _, width, _) in zip(kernels, CASES, strict=True):
        accesses = LOOPS * BODY * WARPS
        samples = []
        for _ in range(21):
            kernel(clocks, LOOPS)
            samples.append(float((clocks[1].max() - clocks[0].min()).item()) / accesses)
        bench.report(
            claim,
            {"access": name, "bytes_per_lane": width, "warps": WARPS},
            cycles_per_warp_access=samples[1:],
            bytes_per_clock=[32 * width / sample for sample in samples[1:]],
        )


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
