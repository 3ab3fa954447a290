"""Small measurements on a GPU, each an answer to one question of a kernel engineer.

An experiment is a file of `kernels/experiments/`: claims (id and question), `compile_kernels`, which
needs no GPU, and `measure`, which reports values for the claims as JSON lines. All of them, one after
the other, each in a process of its own, are run by `run_all.py` there.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import cuda.bindings.driver as cuda
import torch
from cutlass import Int32, cute

from kwiki_kernels.device import environment, local_gpu
from kwiki_kernels.job import Protocol
from kwiki_kernels.timing import GraphTimer

ARCH = "sm_90a"
SPIN_CYCLES = 2_000_000
"""Length of the wait that shows the SM clock, about a millisecond."""

Name = TypeVar("Name")

TORCH_DTYPES = {
    "Float32": torch.float32,
    "BFloat16": torch.bfloat16,
    "Float16": torch.float16,
    "Int32": torch.int32,
    "Int64": torch.int64,
    "Uint8": torch.uint8,
    "Float8E4M3FN": torch.float8_e4m3fn,
}


class Kernel:
    """A `@cute.jit` function of pointers and 32-bit integers, compiled for one set of constants.

    `spec` has a DSL number type for each pointer and an int for each Int32; the function takes the
    CUDA stream after them. `constants` are its `Constexpr` arguments. Compiling needs no GPU.
    """

    def __init__(self, host: Callable[..., Any], *spec: Any, align: int = 16, **constants: Any) -> None:
        self.spec, self.align = spec, align
        example = [self._argument(kind, 0) for kind in spec]
        self.compiled = cute.compile(host, *example, cuda.CUstream(0), **constants)

    def __call__(self, *values: Any) -> None:
        """Launch on torch's current stream. Tensors stand for pointers: contiguous, of the type in `spec`."""
        arguments = []
        for kind, value in zip(self.spec, values, strict=True):
            if isinstance(kind, type) and TORCH_DTYPES[kind.__name__] is not value.dtype:
                raise TypeError(f"a tensor of {value.dtype} was passed for a pointer to {kind.__name__}")
            arguments.append(self._argument(kind, value.data_ptr() if isinstance(kind, type) else value))
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        self.compiled(*arguments, stream)

    def _argument(self, kind: Any, value: int) -> Any:
        if isinstance(kind, type):
            return cute.runtime.make_ptr(kind, value, cute.AddressSpace.gmem, assumed_align=self.align)
        return Int32(value)


class Bench:
    """Times calls and reports what they took."""

    def __init__(self, claims: Mapping[str, str], out: TextIO) -> None:
        self.claims, self.out = claims, out

    def report(self, claim: str, parameters: Mapping[str, Any], **values: Iterable[float] | float) -> None:
        """One line for `claim`: median, 10th and 90th percentile of each value. Names end in their unit."""
        line = {
            "claim": claim,
            "question": self.claims[claim],
            "parameters": dict(parameters),
            "values": {name: _spread(value) for name, value in values.items()},
        }
        print(json.dumps(line), file=self.out, flush=True)

    def time_us(
        self, call: Callable[[], Any], *, cold_l2: bool = True, iterations: int = 30, rounds: int = 2
    ) -> list[float]:
        """Device time of `call` in a CUDA graph, us; with a cold L2 unless told."""
        return self.compare_us({"": call}, cold_l2=cold_l2, iterations=iterations, rounds=rounds)[""]

    def compare_us(
        self,
        calls: Mapping[Name, Callable[[], Any]],
        *,
        cold_l2: bool = True,
        iterations: int = 10,
        rounds: int = 6,
    ) -> dict[Name, list[float]]:
        """Device time of each call, us, in rounds that take turns: clocks that drift favour none."""
        protocol = Protocol(warmup=3, iterations=iterations, rounds=rounds, cold_l2=cold_l2)
        timers = {name: GraphTimer(call, protocol) for name, call in calls.items()}
        samples: dict[Name, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, timer in timers.items():
                samples[name].extend(timer.round())
        return samples

    def compare_nodes_us(
        self, calls: Mapping[Name, Callable[[], Any]], *, repeats: int = 20, rounds: int = 20
    ) -> dict[Name, list[float]]:
        """Time per call, us, in a CUDA graph of nothing but `repeats` of it: gaps between them count.

        Rounds of the calls take turns, after one that does not count.
        """
        graphs = {name: _graph(call, repeats) for name, call in calls.items()}
        samples: dict[Name, list[float]] = {name: [] for name in calls}
        for _ in range(rounds + 1):
            for name, graph in graphs.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                graph.replay()
                start.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                samples[name].append(1000 * start.elapsed_time(end) / repeats)
        return {name: values[1:] for name, values in samples.items()}

    def samples(self, call: Callable[[], Any], out: torch.Tensor, *, repeats: int = 20) -> list[float]:
        """What `call` wrote to `out`, mean over its elements, once per repeat after one to warm up."""
        means = []
        for _ in range(repeats + 1):
            call()
            means.append(float(out.double().mean()))
        return means[1:]

    def sm_clock_mhz(self) -> float:
        """The SM clock while one SM counts cycles, MHz."""
        wait = partial(torch.cuda._sleep, SPIN_CYCLES)
        return SPIN_CYCLES / statistics.median(self.time_us(wait, cold_l2=False, iterations=5, rounds=1))


def main(
    file: str,
    claims: Mapping[str, str],
    compile_kernels: Callable[[], Any],
    measure: Callable[[Any, Bench], None],
) -> None:
    """Command line of an experiment: compile, then measure and print JSON lines, the environment first."""
    parser = argparse.ArgumentParser(description=" ".join(claims.values()))
    parser.add_argument("--out", type=Path, help="write the lines here instead of stdout")
    parser.add_argument("--compile-only", action="store_true", help="stop before the GPU is needed")
    parser.add_argument("--wait", action="store_true", help="measure when a line comes in on stdin")
    arguments = parser.parse_args()
    os.environ.setdefault("CUTE_DSL_ARCH", ARCH)
    kernels = compile_kernels()
    if arguments.compile_only:
        return
    if arguments.wait:
        print("compiled", flush=True)
        sys.stdin.readline()
    if local_gpu() is None:
        parser.exit(1, f"{parser.prog}: there is no GPU here to measure on; --compile-only stops before\n")
    with arguments.out.open("w") if arguments.out else sys.stdout as out:
        bench = Bench(claims, out)
        print(json.dumps(_header(Path(file).stem, bench)), file=out, flush=True)
        measure(kernels, bench)


def _graph(call: Callable[[], Any], repeats: int) -> torch.cuda.CUDAGraph:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    return graph


def _header(name: str, bench: Bench) -> dict[str, Any]:
    where = environment(local_gpu())
    return {
        "experiment": name,
        "command": f"python kernels/experiments/{name}.py",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "environment": where.model_dump() | {"sm_clock_mhz": round(bench.sm_clock_mhz())},
    }


def _spread(value: Iterable[float] | float) -> dict[str, float]:
    samples: Sequence[float] = sorted(value) if isinstance(value, Iterable) else [value]
    last = len(samples) - 1
    quantiles = {"p10": samples[round(0.1 * last)], "p90": samples[round(0.9 * last)]}
    spread = {"median": statistics.median(samples), **quantiles}
    return {name: float(f"{number:.5g}") for name, number in spread.items()} | {"n": len(samples)}
