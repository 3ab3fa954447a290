"""A kernel that only reads, for the experiments that ask how fast that goes: threads sum what they load."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import Int32, Int64, cute
from cutlass.cute import nvgpu
from kwiki_kernels.experiment import Kernel

EVICTION = nvgpu.CacheEvictionPriority
# L2 eviction policies, as PTX's createpolicy makes them.
POLICIES = {"normal": None, "evict-first": 0x12F0000000000000, "evict-last": 0x14F0000000000000}
L1_HINTS = {
    "normal": {},
    "no-allocate": {"l1c_evict_priority": EVICTION.NO_ALLOCATE},
    "constant": {"invariant": True},
    "skip": {"load_cache_mode": nvgpu.LoadCacheMode.GLOBAL},
    "prefetch-256": {"l2_prefetch_size": nvgpu.L2PrefetchSize.SIZE_256B},
}


@dataclass(frozen=True)
class Reader:
    """Loads of `bits` each, `depth` of them under way in each of `threads` threads of a CTA."""

    bits: int = 128
    depth: int = 4
    threads: int = 256
    l1: str = "normal"
    l2: str = "normal"

    @cute.jit
    def __call__(
        self,
        x: cute.Pointer,
        sums: cute.Pointer,
        ctas: Int32,
        steps: Int32,
        passes: Int32,
        offset: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(x, sums, steps, passes, offset).launch(
            grid=[ctas, 1, 1], block=[self.threads, 1, 1], stream=stream
        )

    @cute.kernel
    def kernel(self, x: cute.Pointer, sums: cute.Pointer, steps: Int32, passes: Int32, offset: Int32):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        ctas, _, _ = cute.arch.grid_dim()
        words = self.bits // 32
        thread, all_threads = bidx * self.threads + tidx, ctas * self.threads
        vectors = cute.make_tensor(
            (x + offset).align(self.bits // 8),
            cute.make_layout((words, steps * self.depth * all_threads), stride=(1, words)),
        )
        atom = cute.make_copy_atom(nvgpu.CopyG2ROp(), Int32, num_bits_per_copy=self.bits, **L1_HINTS[self.l1])
        values = cute.make_rmem_tensor((words, self.depth), Int32)
        total = Int32(0)
        for _ in cutlass.range(passes, unroll=1):
            for step in cutlass.range(steps, unroll=1):
                for d in cutlass.range_constexpr(self.depth):
                    at = (step * self.depth + d) * all_threads + thread
                    policy = POLICIES[self.l2]
                    if cutlass.const_expr(policy is None):
                        cute.copy(atom, vectors[None, at], values[None, d])
                    else:
                        cute.copy(atom, vectors[None, at], values[None, d], cache_policy=Int64(policy))
                total += values.load().reduce(cute.ReductionOp.ADD, Int32(0), 0)
        cute.make_tensor(sums, cute.make_layout(all_threads))[thread] = total


@dataclass(frozen=True)
class Reading:
    """A compiled `Reader` over a tensor: what one launch reads, and with how many bytes under way."""

    reader: Reader
    kernel: Kernel

    def plan(self, read_bytes: int, ctas: int) -> tuple[int, int]:
        """Steps, and the bytes they read: whole turns of all threads only."""
        step_bytes = ctas * self.reader.threads * self.reader.depth * self.reader.bits // 8
        if read_bytes < step_bytes:
            raise ValueError(f"{ctas} CTAs read {step_bytes} bytes in a step; {read_bytes} are fewer")
        steps = read_bytes // step_bytes
        return steps, steps * step_bytes

    def launch(
        self, x: torch.Tensor, sums: torch.Tensor, ctas: int, steps: int, passes: int = 1, offset: int = 0
    ) -> None:
        """Read `x` [int32] from element `offset` on; `sums` holds an int32 for each thread."""
        self.kernel(x, sums, ctas, steps, passes, offset)


def reading(**settings: object) -> Reading:
    """Compile a reader; `settings` are the fields of `Reader`."""
    reader = Reader(**settings)  # type: ignore[arg-type]
    return Reading(reader, Kernel(reader, Int32, Int32, 1, 1, 1, 1))


def check(x: torch.Tensor, sums: torch.Tensor, threads: int, read_bytes: int) -> None:
    """Refuse to report times of a kernel that did not read everything."""
    expected, got = x[: read_bytes // 4].sum(dtype=torch.int64), sums[:threads].sum(dtype=torch.int64)
    if (expected - got) % (1 << 32):
        raise RuntimeError(
            f"the reader summed {got}, expected {expected}: times of wrong results are worthless"
        )
