"""The audit refuses by line what no kernel needs, and lets honest kernels of every style pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_kernels.audit import OwnKernels, audit_source
from kwiki_kernels.evaluation import Status
from kwiki_kernels.job import Defences
from kwiki_kernels.judge import run_job
from kwiki_kernels.static_report import StaticReport

from tests.kernels.cheat_samples import CUTE, HONEST, jobs

SEEDS = {
    f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parents[2] / "kernels" / "tasks").glob("*/kernel*.py"))
}
TRITON = "import torch\nimport triton\nfrom triton import language as tl\n"


@pytest.mark.parametrize("name", HONEST | SEEDS)
def test_an_honest_text_is_not_refused(name: str) -> None:
    assert str(audit_source((HONEST | SEEDS)[name]) or "") == ""


def test_at_least_thirty_honest_texts_stand_here_in_both_languages() -> None:
    assert len(HONEST | SEEDS) > 30
    assert len(CUTE) >= 5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os", "line 4 imports os"),
        ("import torch.nn.functional as F", "line 4 imports torch.nn.functional"),
        ("from torch import matmul", "line 4 imports torch.matmul"),
        ("from torch import *", "line 4 imports all of torch"),
        ("from .kernel import x", "line 4 imports .kernel"),
        ("from cutlass.runtime import Path", "line 4 imports cutlass.runtime.Path"),
        ("from cutlass import cutlass_dsl as d\nd.io.open('x')", "line 5 uses cutlass.cutlass_dsl.io.open"),
        ("from ctypes import CDLL", "line 4 imports ctypes.CDLL"),
        ("import numpy as np", "line 4 imports numpy"),
        ("from enum import sys", "line 4 imports enum.sys"),
        ("from collections import _sys", "line 4 imports collections._sys"),
        ("import dataclasses\nm = dataclasses.sys.modules", "line 5 uses dataclasses.sys"),
        ("from typing import get_type_hints", "line 4 imports typing.get_type_hints"),
        ("from triton.language.core import os", "line 4 imports triton.language.core.os"),
        ("from triton.testing import do_bench", "line 4 imports triton.testing"),
        ("t = torch", "line 4 uses torch"),
        ("y = torch.ones(3)", "line 4 uses torch.ones"),
        ("y = tl.torch.ones(3)", "line 4 uses triton.language.torch.ones"),
        ("y = triton.runtime.driver", "line 4 uses triton.runtime.driver"),
        ("torch.cuda.synchronize()", "line 4 uses torch.cuda.synchronize"),
        ("torch.empty = print", "line 4 replaces torch.empty"),
        ("del torch.empty", "line 4 replaces torch.empty"),
        ("y = ().__class__", "line 4 reaches for .__class__"),
        ("y = getattr(tl, 'to' + 'rch')", "line 4 uses getattr with a name that cannot be read here"),
        ("y = getattr(tl, '__dict__')", "line 4 uses getattr with a name that cannot be read here"),
        ("eval('1')", "line 4 uses eval"),
        ("f = open", "line 4 uses open"),
        ("try:\n    pass\nexcept Exception:\n    pass", "line 6 catches an exception"),
        ("class A:\n    def __getattr__(self, name): ...", "line 5 defines __getattr__"),
        ("def run(x, w, y): return x @ w", "line 4 computes with a tensor outside of a kernel"),
        ("def run(x, w, y): y[:] = w", "line 4 writes to a tensor outside of a kernel"),
        ("def run(x, w, y):\n    x += w", "line 5 computes with a tensor"),
        ("def run(x, w, y): y.copy_(w)", "line 4 asks a tensor for .copy_"),
        ("def run(x, w, y): y.data = w", "line 4 asks a tensor for .data"),
        ("def run(x, w, y): return sum(x)", "line 4 gives a tensor to sum"),
        ("def run(x, w, y): return [-t for t in (x, w)]", "line 4 computes with a tensor"),
        ("def run(x, w, y):\n    t = x.view(-1)\n    return t * t", "line 6 computes with a tensor"),
        ("def run(x, w, y): return f(x)\ndef f(t): return t * 2", "line 5 computes with a tensor"),
        ("def run(x, w, y):\n    t = torch.empty(3)\n    return t + 1", "line 6 computes with a tensor"),
        ("def build(axes, knobs):\n    def go(x, y): y.add_(x)\n    return go", "line 5 asks a tensor for"),
        ("def build(axes, knobs):\n    return lambda x, y: y.add_(x)", "line 5 asks a tensor for .add_"),
        ("class Launch:\n    def __call__(self, x, y): self.go(x)\n    def go(self, t): t.exp()", ".exp"),
    ],
)  # fmt: skip
def test_what_no_kernel_needs_is_refused_with_its_line(text: str, what: str) -> None:
    assert what in str(audit_source(TRITON + text))


@pytest.mark.parametrize(
    "text",
    [
        "def run(x, w, y): return x.shape[0] * x.element_size() + x.data_ptr() % 16",
        "def run(x, w, y):\n    if x.dtype == torch.bfloat16 and w is not None: pass",
        "def run(x, w, y):\n    n, t = x.numel(), x.view(-1)\n    return n // 2",
        "def up(a, b): return -(-a // b)\ndef run(x, w, y): return up(x.shape[0], 4)",
        "def run(x, w, y):\n    for t in (x, w, *(y, x)): assert t.is_contiguous() and t.stride(-1) == 1",
        "def build(axes, knobs):\n    n = axes['n']\n    def go(x, y): return n * x.size(0)\n    return go",
        "@triton.jit\ndef inner(a, b): return a * b + tl.sum(a)",
        "CACHE = {}\ndef run(x, w, y): CACHE[x.shape] = x.shape[0] + 1",
    ],
)  # fmt: skip
def test_asking_tensors_for_facts_is_no_computation(text: str) -> None:
    assert str(audit_source(TRITON + text) or "") == ""


def test_a_text_in_no_language_is_refused_and_one_that_is_no_python_left_to_the_build() -> None:
    refusal = audit_source("def run(x, y): ...")
    assert str(refusal) == "line 1 is written in none of the languages judged here: CuTe-DSL, Triton"
    assert audit_source("def run(:") is None
    assert str(audit_source("x = " + "-" * 5000 + "1")) == "line 1 is nested too deeply to be read"


@pytest.mark.parametrize(
    "before", ["", "\n", "# a\x0bb\x0bc\n", "# a\x1cb\x1cc\n", "# a\r", "# \u2028\u2028\n"]
)
def test_a_text_under_another_encoding_would_be_another_text(before: str) -> None:
    assert "declares an encoding" in str(audit_source(f"{before}# -*- coding: utf-7 -*-\n{TRITON}"))


@pytest.mark.parametrize(
    ("text", "line_says"),
    [
        ("ask = getattr", "uses getattr"),
        ("z = getattr(*[run, '__globals__'])", "uses getattr"),
        ("z = list(map(getattr, [run], ['__globals__']))", "uses getattr"),
        ("z = getattr(run, '__globals__')", "uses getattr"),
        ("match run:\n    case object(__globals__=g): ...", "reaches for .__globals__"),
        ("match run:\n    case Anything(g): ...", "takes an object apart by position"),
        ("class Anything:\n    __match_args__ = ('__globals__',)", "uses __match_args__"),
        ("here = __file__", "uses __file__"),
    ],
)
def test_an_attribute_is_asked_for_by_a_name_that_can_be_read(text: str, line_says: str) -> None:
    assert line_says in str(audit_source(TRITON + text))


def test_names_of_kernels_are_read_from_the_decorators() -> None:
    own = OwnKernels.of(HONEST["row01_two_launches"])
    assert own.names == {"mean_squares", "scale"}
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    library = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN"
    assert own.foreign(["mean_squares", fill, "scale", library, library, "scale_more"]) == [
        library,
        "scale_more",
    ]


@pytest.mark.parametrize("decorator", ["triton.jit", "triton.jit(do_not_specialize=['width'])"])
def test_a_kernel_is_its_own_whatever_its_decorator_is_told(decorator: str) -> None:
    own = OwnKernels.of(f"import triton\n@{decorator}\ndef scale(x, width): ...")
    assert own.foreign(["scale"]) == []


@pytest.fixture(scope="module")
def cute_reports() -> dict[str, tuple[StaticReport, ...]]:
    (job,) = jobs(CUTE, Defences(), stage="build")
    verdicts = run_job(job)
    assert [verdict.log for verdict in verdicts if not verdict.static_reports] == []
    assert {verdict.status for verdict in verdicts} == {Status.UNMEASURED}
    return {verdict.candidate_id: verdict.static_reports for verdict in verdicts}


@pytest.mark.parametrize("name", CUTE)
def test_a_cute_kernel_compiles_confined_and_its_binary_bears_its_own_name(
    name: str, cute_reports: dict[str, tuple[StaticReport, ...]]
) -> None:
    seen = [report.kernel for report in cute_reports[name]]
    assert OwnKernels.of(HONEST[name]).foreign(seen) == []
    assert OwnKernels.of(HONEST["row02_persistent"]).foreign(seen) == seen
