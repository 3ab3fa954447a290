"""How the kernel of a page is run on the GPU and compared with torch."""

from __future__ import annotations

import faulthandler
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from kwiki_ingest.truth import fences as code_fences

WIKI = Path(__file__).parents[3] / "wiki"
BF16, F16, F32, FP8 = torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn
RELATIVE_L2 = 0.01
"""Faithful kernels with 16-bit outputs stay below 0.004."""

LIMIT_S = 30
"""A case that takes longer hangs: alone each takes a few seconds, compilation included."""

Case = Callable[[ModuleType, Any], tuple[torch.Tensor, torch.Tensor]]
"""From the page's code and a stream to what the kernel computed and what it should have."""
CASES: dict[str, tuple[Case, int]] = {}


def case(fence: int = 0) -> Callable[[Case], Case]:
    """The function tests the page of its name, by the code of its `fence`-th Python fence that compiles."""

    def add(function: Case) -> Case:
        CASES[function.__name__.replace("_", "-")] = function, fence
        return function

    return add


def run(name: str) -> None:
    """Run one case. Raises AssertionError if the numbers are wrong.

    After `LIMIT_S` the process prints where in Python it stands, compiling or waiting for the GPU, and exits.
    """
    from cutlass.torch import current_stream

    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    function, fence = CASES[name]
    got, want = function(module(page_code(name, fence)), current_stream())
    torch.cuda.synchronize()
    error = ((got.double() - want.double()).norm() / want.double().norm()).item()
    assert error < RELATIVE_L2, f"{name}: relative L2 error {error:.2g}"
    print(f"{name}: relative L2 error {error:.2g}")


def page_code(name: str, fence: int = 0) -> str:
    """The `fence`-th Python fence of a page among those that compile."""
    (path,) = WIKI.glob(f"*/{name}.md")
    code = [
        f.code for f in code_fences.fences(path.read_text()) if f.is_python and f.info.startswith("compiles")
    ]
    return code[fence]


def module(code: str) -> ModuleType:
    """The code as an imported module."""
    file = Path(tempfile.mkdtemp()) / "page_code.py"  # the DSL reads its source from a file
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("page_code", file)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    sys.modules["page_code"] = page  # dataclasses and the DSL look there
    spec.loader.exec_module(page)
    return page


def view(tensor: torch.Tensor) -> Any:
    """The tensor as the DSL takes it."""
    from cutlass.cute.runtime import from_dlpack

    return from_dlpack(tensor, assumed_align=16 if tensor.data_ptr() % 16 == 0 else None)


def normal(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device="cuda").to(dtype)


def empty(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.full(shape, float("nan"), device="cuda").to(dtype)
