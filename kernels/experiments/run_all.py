"""Run the experiments: all compile at the same time, each measures alone, in a process of its own.

A process that hangs or fails is ended and named, and the rest goes on. For each experiment that
succeeds, `OUT/<run>.json` is written, ready to be kept as evidence in the wiki.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, cast

HERE = Path(__file__).parent
EXPERIMENTS = (
    "latency",
    "instruction_rates",
    "barrier_cost",
    "shared_memory",
    "read_bandwidth",
    "l2_cache",
    "cache_hints",
    "load_paths",
    "launch_cost",
    "dependent_launch",
    "atomics",
    "reduction_styles",
    "wgmma_rate",
    "gemm_parts",
    "gemm_multicast",
    "gemm_schedule",
    "gemm_order",
    "split_k",
    "fp8_promotion",
    "warp_mma_rate",
    "softmax_passes",
    "exp2_mix",
    "static_layouts",
    "store_paths",
    "cluster_memory",
    "gather_rows",
    "copy_sizes",
    "tma_latency",
    "code_size",
    "call_overhead",
)
"""In the order they run: what times the host comes last, when nothing else compiles any more."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder for results and logs")
    parser.add_argument("--only", nargs="*", default=EXPERIMENTS, choices=EXPERIMENTS, help="run these alone")
    parser.add_argument(
        "--compile-limit", type=float, default=240, help="seconds until all must have compiled"
    )
    parser.add_argument("--limit", type=float, default=60, help="seconds that one may measure")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    running = {name: start(name, arguments.out) for name in arguments.only}
    deadline = time.monotonic() + arguments.compile_limit
    failed = []
    for name, process in running.items():
        compiled = says(process, "compiled", deadline)
        began = time.monotonic()
        outcome = measure(process, arguments.limit) if compiled else "did not compile"
        stop(process)
        if outcome == "done":
            keep(name, arguments.out)
        else:
            failed.append(name)
        report = {"experiment": name, "outcome": outcome, "measured_s": round(time.monotonic() - began, 1)}
        print(json.dumps(report), flush=True)
    return 1 if failed else 0


def start(name: str, out: Path) -> subprocess.Popen[str]:
    """Let the experiment compile and wait for its turn."""
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, str(HERE / f"{name}.py"), "--wait", "--out", str(out / f"{name}.jsonl")]
    with (out / f"{name}.log").open("w") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )


def says(process: subprocess.Popen[str], word: str, deadline: float) -> bool:
    """Whether the process prints `word` before the deadline."""
    stdout = cast(IO[str], process.stdout)
    while (left := deadline - time.monotonic()) > 0:
        if select.select([stdout], [], [], left)[0]:
            line = stdout.readline()
            if not line or line.strip() == word:
                return bool(line)
    return False


def measure(process: subprocess.Popen[str], limit_s: float) -> str:
    """Give the process its turn; `done`, or what went wrong."""
    try:
        process.communicate("go\n", timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"was ended after {limit_s:g} s"
    return "done" if process.returncode == 0 else f"failed with exit status {process.returncode}"


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def keep(name: str, out: Path) -> None:
    """Make one document of the lines: what the wiki keeps as evidence."""
    header, *measurements = map(json.loads, (out / f"{name}.jsonl").read_text().splitlines())
    gpu = header["environment"]["gpu"].split()[-1].lower()
    run = f"{name.replace('_', '-')}-{gpu}-{header['date'].replace('-', '')}"
    source = hashlib.sha256((HERE / f"{name}.py").read_bytes()).hexdigest()
    record: dict[str, Any] = {"run": run, **header, "source_sha256": source, "measurements": measurements}
    (out / f"{run}.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
