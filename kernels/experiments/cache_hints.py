"""What the hints on loads change: which data stays in L2 beside a stream, and how fast the stream is."""

from __future__ import annotations

from functools import partial

import torch
from kwiki_kernels.experiment import Bench, main
from reading import Reading, check, reading

CLAIMS = {
    "hints-none": "Does a table in L2 survive a stream of ten times its size that is read without hints?",
    "hints-evict-first": "Does it survive if the stream is read with the L2 policy evict-first?",
    "hints-evict-last": "Does it survive if the table itself was read with evict-last?",
    "hints-l1": "Does telling L1 not to keep a stream speed the stream up?",
    "hints-constant": "Do loads through the read-only path read HBM faster?",
    "hints-prefetch": "Does asking L2 to fetch 256 bytes per miss speed up a stream?",
}
MIB = 1 << 20
TABLES_MIB = (9, 22, 35)
STREAM_MIB = 256
READERS = {
    "none": {},
    "evict-first": {"l2": "evict-first"},
    "evict-last": {"l2": "evict-last"},
    "no-allocate": {"l1": "no-allocate"},
    "constant": {"l1": "constant"},
    "prefetch-256": {"l1": "prefetch-256"},
}


def compile_kernels() -> dict[str, Reading]:
    return {name: reading(bits=128, depth=2, threads=512, **settings) for name, settings in READERS.items()}


def measure(kernels: dict[str, Reading], bench: Bench) -> None:
    def data(mib: int) -> torch.Tensor:
        return torch.randint(-(1 << 31), 1 << 31, (mib * MIB // 4,), dtype=torch.int32, device="cuda")

    stream = data(STREAM_MIB)
    sums = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    ctas = 2 * torch.cuda.get_device_properties().multi_processor_count

    def launch(name: str, x: torch.Tensor) -> partial[None]:
        steps, _ = kernels[name].plan(x.nbytes, ctas)
        return partial(kernels[name].launch, x, sums, ctas, steps)

    def again_us(table_hint: str, stream_hint: str, table: torch.Tensor) -> list[float]:
        """Time to read the table again after table, stream; plain events, as order is all that matters."""
        first, between = launch(table_hint, table), launch(stream_hint, stream)
        samples = []
        for _ in range(20):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(1_000_000)  # lets the host get ahead, so that no gap counts
            first()
            between()
            start.record()
            first()
            end.record()
            torch.cuda.synchronize()
            samples.append(1000 * start.elapsed_time(end))
        return samples[2:]

    for name in READERS:
        _, moved_bytes = kernels[name].plan(stream.nbytes, ctas)
        launch(name, stream)()
        check(stream, sums, ctas * kernels[name].reader.threads, moved_bytes)
    for mib in TABLES_MIB:
        table = data(mib)
        _, moved_bytes = kernels["none"].plan(table.nbytes, ctas)
        setting = {"table_bytes": moved_bytes, "stream_bytes": stream.nbytes}
        warm = bench.time_us(launch("none", table), cold_l2=False)
        cold = bench.time_us(launch("none", table), cold_l2=True)
        for claim, table_hint, stream_hint in (
            ("hints-none", "none", "none"),
            ("hints-evict-first", "none", "evict-first"),
            ("hints-evict-last", "evict-last", "none"),
            ("hints-evict-last", "evict-last", "evict-first"),
        ):
            bench.report(
                claim,
                setting | {"table": table_hint, "stream": stream_hint},
                again_us=again_us(table_hint, stream_hint, table),
                warm_us=warm,
                cold_us=cold,
            )
    for claim, names in (
        ("hints-l1", ("none", "no-allocate")),
        ("hints-constant", ("none", "constant")),
        ("hints-prefetch", ("none", "prefetch-256")),
    ):
        for name in names:
            _, moved_bytes = kernels[name].plan(stream.nbytes, ctas)
            samples = bench.time_us(launch(name, stream))
            bench.report(claim, {"hint": name}, read_gbps=[moved_bytes / us / 1e3 for us in samples])


if __name__ == "__main__":
    main(__file__, CLAIMS, compile_kernels, measure)
