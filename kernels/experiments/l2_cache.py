"""How fast the L2 answers, and up to which size of data."""

from __future__ import annotations

import statistics
from functools import partial

import torch
from kwiki_kernels.experiment import Bench, main
from reading import Reading, check, reading

CLAIMS = {
    "l2-read-bandwidth": "How fast do all SMs together read data that lies in L2?",
    "l2-capacity": "Up to which size does data that is read again stay in the H200's L2?",
    "l1-read-bandwidth": "How fast does an SM read data that lies in its L1?",
}
MIB = 1 << 20
SIZES_MIB = (5, 9, 17, 25, 33, 42, 50, 58, 66, 99, 132, 256)


def compile_kernels() -> dict[str, Reading]:
    return {l1: reading(bits=128, depth=2, threads=512, l1=l1) for l1 in ("normal", "skip")}


def measure(kernels: dict[str, Reading], bench: Bench) -> None:
    x = torch.randint(-(1 << 31), 1 << 31, (512 * MIB // 4,), dtype=torch.int32, device="cuda")
    sums = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count
    ctas = 2 * sms

    def bandwidth(one: Reading, read_bytes: int) -> tuple[int, list[float]]:
        """Time of ten passes over the same bytes less that of two, so that the first pass cancels out."""
        steps, moved_bytes = one.plan(read_bytes, ctas)
        one.launch(x, sums, ctas, steps)
        check(x, sums, ctas * one.reader.threads, moved_bytes)
        short, long = (
            bench.time_us(partial(one.launch, x, sums, ctas, steps, passes), cold_l2=False, iterations=15)
            for passes in (2, 10)
        )
        two_passes = statistics.median(short)
        return moved_bytes, [8 * moved_bytes / (ten_passes - two_passes) / 1e3 for ten_passes in long]

    for mib in SIZES_MIB:
        moved_bytes, gbps = bandwidth(kernels["skip"], mib * MIB)
        setting = {"bytes": moved_bytes, "ctas": ctas, "passes": "10 less 2"}
        if mib == 17:
            bench.report("l2-read-bandwidth", setting, read_gbps=gbps)
        bench.report("l2-capacity", setting, read_gbps=gbps)
    # A thread reads the same addresses in each pass, so that its part may stay in the L1 of its SM.
    for mib in (5, 9, 17, 25, 33):
        moved_bytes, gbps = bandwidth(kernels["normal"], mib * MIB)
        setting = {"bytes_per_sm": moved_bytes // sms, "ctas": ctas, "passes": "10 less 2"}
        bench.report("l1-read-bandwidth", setting, read_gbps=gbps)


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
