"""How much must be under way to read HBM at full speed, and what narrow or misaligned loads lose."""

from __future__ import annotations

from functools import partial

import torch
from kwiki_kernels.experiment import Bench, main
from reading import Reading, check, reading

CLAIMS = {
    "read-bytes-in-flight": "How many bytes per SM must be under way to read HBM at full speed?",
    "read-occupancy": "How many warps per SM does one 128-bit load per thread need, and how many do four?",
    "read-width": "Do 32-bit loads reach the bandwidth of 128-bit loads at full occupancy?",
    "read-misaligned": "What does a warp lose whose loads start 4 bytes, or 16, off a 128-byte line?",
    "read-few-sms": "How much HBM bandwidth can one SM draw, and how many SMs saturate it?",
}
READ_BYTES = 1 << 30
DEPTHS = (1, 2, 4, 8)
CTAS_PER_SM = (1, 2, 4, 8)


def compile_kernels() -> dict[tuple[int, int], Reading]:
    settings = [(128, depth) for depth in DEPTHS] + [(64, 1), (32, 1), (32, 4)]
    return {(bits, depth): reading(bits=bits, depth=depth) for bits, depth in settings}


def measure(kernels: dict[tuple[int, int], Reading], bench: Bench) -> None:
    x = torch.randint(-(1 << 31), 1 << 31, (READ_BYTES // 4 + 1024,), dtype=torch.int32, device="cuda")
    sums = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    sms = torch.cuda.get_device_properties().multi_processor_count

    def bandwidth(
        claim: str, bits: int, depth: int, ctas: int, offset: int = 0, read_bytes: int = READ_BYTES
    ):
        one = kernels[bits, depth]
        steps, moved_bytes = one.plan(read_bytes, ctas)
        launch = partial(one.launch, x, sums, ctas, steps, offset=offset)
        launch()
        check(x[offset:], sums, ctas * one.reader.threads, moved_bytes)
        samples = bench.time_us(launch, iterations=15)
        per_sm = max(1, ctas // sms)
        warps = per_sm * one.reader.threads // 32
        setting = {"bits": bits, "loads_in_flight": depth, "warps_per_sm": warps, "ctas": ctas}
        setting |= {"bytes_in_flight_per_sm": warps * 32 * depth * bits // 8, "offset_bytes": 4 * offset}
        bench.report(claim, setting, read_gbps=[moved_bytes / us / 1e3 for us in samples])

    for depth in DEPTHS:
        for per_sm in CTAS_PER_SM:
            bandwidth("read-bytes-in-flight", 128, depth, sms * per_sm)
    for depth in (1, 4):
        for per_sm in CTAS_PER_SM:
            bandwidth("read-occupancy", 128, depth, sms * per_sm)
    for bits, depth in ((32, 1), (64, 1), (128, 1), (32, 4)):
        bandwidth("read-width", bits, depth, sms * 8)
    for bits, depth, offset in ((32, 4, 0), (32, 4, 1), (128, 1, 0), (128, 1, 4)):
        bandwidth("read-misaligned", bits, depth, sms * 8, offset)
    for ctas in (1, 8, 32, 66, 99, 132):
        bandwidth("read-few-sms", 128, 8, ctas, read_bytes=max(1 << 24, READ_BYTES * ctas // (2 * sms)))


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
