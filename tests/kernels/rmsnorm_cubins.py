"""Compiles kernels in a process of its own: the DSL reads its environment once, when it is imported."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASK = Path(__file__).parents[2] / "kernels" / "tasks" / "rmsnorm"
DEFAULT_KNOBS: dict[str, Any] = json.loads((TASK / "knobs.json").read_text())["default"]


class BuildFailedError(Exception):
    """The message is what the process said on stderr."""


@dataclass(frozen=True)
class Compiled:
    cubin: bytes
    host_ir: str


def compile_rmsnorm(
    arch: str, points: list[tuple[int, dict[str, Any]]], dump_dir: Path
) -> tuple[list[Compiled], list[str]]:
    """Build for every (hidden_size, changes to the default knobs); also which modules that imported."""
    job = {
        "kernel": str(TASK / "kernel.py"),
        "points": [(hidden, {**DEFAULT_KNOBS, **knobs}) for hidden, knobs in points],
    }
    env = os.environ | {
        "CUTE_DSL_ARCH": arch,
        "CUTE_DSL_KEEP": "cubin",
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_DSL_DUMP_DIR": str(dump_dir),
    }
    run = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(job),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise BuildFailedError(run.stderr[-2000:])
    answer = json.loads(run.stdout)
    compiled = [Compiled(base64.b64decode(cubin), host_ir) for cubin, host_ir in answer["compiled"]]
    return compiled, answer["modules"]


def _main() -> None:
    import importlib.util

    job = json.load(sys.stdin)
    spec = importlib.util.spec_from_file_location("rmsnorm_kernel", job["kernel"])
    assert spec is not None
    assert spec.loader is not None
    kernel = importlib.util.module_from_spec(spec)
    sys.modules["rmsnorm_kernel"] = kernel
    spec.loader.exec_module(kernel)
    compiled = []
    for hidden, knobs in job["points"]:
        (function,) = kernel.build({"hidden_size": hidden}, knobs).compiled
        compiled.append((base64.b64encode(function.__cubin__).decode(), str(function.ir_module)))
    json.dump({"compiled": compiled, "modules": sorted(sys.modules)}, sys.stdout)


if __name__ == "__main__":
    _main()
