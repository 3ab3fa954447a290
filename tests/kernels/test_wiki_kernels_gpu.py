"""Kernels that wiki pages show, run: each gives what torch gives in float64."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

WIKI = Path(__file__).parents[2] / "wiki"
SHOWN = {
    "bank-conflicts": "transpose",
    "dequantisation": "gemv",
    "epilogue-fusion": "gemm",
    "fp8-quantisation": "quantise",
    "gdn-decode": "step",
    "grouped-gemm": "who",
    "hangs": "hand_over",
    "invented-names": "count_positive",
    "ragged-schedulers": "scale",
    "sfu-bound": "run",
    "skinny-gemm": "skinny",
    "softmax": "softmax",
    "split-k": "gemv",
    "topk-indexer": "threshold",
    "unrolling": "row_sum",
}
"""Page to the host function of its first fence that compiles."""

Snippet = Callable[[str], ModuleType]


def gpu_test(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs a page's kernel."""
    skip = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
    marked: Callable[..., None] = pytest.mark.gpu(skip(test))
    return marked


def code_of(page: str) -> str:
    (path,) = WIKI.rglob(f"{page}.md")
    fence = re.search(r"```python compiles[^\n]*\n(.*?)```", path.read_text(), re.S)
    assert fence is not None
    return fence[1]


@pytest.fixture
def snippet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snippet:
    """The code of a page as a module; importing it compiles its kernel for the GPU that is here."""

    def load(page: str) -> ModuleType:
        name = f"page_{page.replace('-', '_')}"
        path = tmp_path / f"{name}.py"
        path.write_text(code_of(page))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


def launch(function: Any, *arguments: Any, constants: tuple[Any, ...] = (), options: str = "") -> None:
    """Compile for these tensors and numbers, run on torch's current stream, wait.

    Tensors are believed aligned to 16 bytes, as allocations of torch are; `constants` come last.
    """
    import cuda.bindings.driver as cuda
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    given = [from_dlpack(a, assumed_align=16) if isinstance(a, torch.Tensor) else a for a in arguments]
    compiled = cute.compile(function, *given, *constants, stream, **({"options": options} if options else {}))
    compiled(*given, stream)
    torch.cuda.synchronize()


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative L2 error against float64."""
    return float((result.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("page", sorted(SHOWN))
def test_a_page_still_shows_the_function_that_is_run_here(page: str) -> None:
    assert re.search(rf"^def {SHOWN[page]}\(", code_of(page), re.M)


@gpu_test
def test_split_k_is_right_and_repeatable_and_leaves_its_counters_at_zero(snippet: Snippet) -> None:
    w, x = normal(4096, 4096, dtype=torch.bfloat16), normal(4096, dtype=torch.bfloat16)
    parts, counts = torch.empty(8, 4096, device="cuda"), torch.zeros(32, dtype=torch.int32, device="cuda")
    results = [torch.zeros(4096, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    module = snippet("split-k")
    for y in results:
        launch(module.gemv, w, x, parts, counts, y)
    assert error(results[0], w.double() @ x.double()) < 0.005
    assert torch.equal(*results)
    assert not counts.any()


@gpu_test
def test_a_ragged_schedule_visits_every_row_of_every_group_once(snippet: Snippet) -> None:
    import cutlass

    sizes = torch.tensor([0, 5, 64, 65, 0, 1, 700, 128], device="cuda")
    ends, scales = sizes.cumsum(0).int(), normal(8)
    x = normal(int(ends[-1]), 200)
    exact = x.double() * scales.double().repeat_interleave(sizes)[:, None]
    launch(snippet("ragged-schedulers").scale, x, ends, scales, cutlass.Int32(7))
    assert error(x, exact) < 1e-6


@gpu_test
def test_the_group_of_each_tile_is_found_among_empty_groups(snippet: Snippet) -> None:
    import cutlass

    sizes = [0, 130, 64, *range(1, 28), 0, 5]
    ends = list(itertools.accumulate(sizes))
    tiles = [
        [group, end - size + 64 * tile]
        for group, (size, end) in enumerate(zip(sizes, ends, strict=True))
        for tile in range(-(-size // 64))
    ]
    found = torch.full((len(tiles), 2), -1, dtype=torch.int32, device="cuda")
    on_device = torch.tensor(ends, dtype=torch.int32, device="cuda")
    launch(snippet("grouped-gemm").who, on_device, found, cutlass.Int32(5))
    assert found.tolist() == tiles


@gpu_test
def test_four_bit_weights_are_unpacked_in_the_order_that_the_page_states(snippet: Snippet) -> None:
    weights = torch.randint(-8, 8, (512, 1024), device="cuda")
    words = torch.zeros(512, 128, dtype=torch.int64, device="cuda")
    for nibble, element in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):  # nibbles j and j + 4 become neighbours
        words |= (weights.view(512, 128, 8)[..., element] + 8) << (4 * nibble)
    words = torch.where(words < 2**31, words, words - 2**32).int()
    scales, x = torch.rand(512, 8, device="cuda"), normal(1024, dtype=torch.bfloat16)
    y = torch.empty(512, dtype=torch.bfloat16, device="cuda")
    launch(snippet("dequantisation").gemv, words, scales, x, y)
    assert error(y, (weights.double() * scales.double().repeat_interleave(128, 1)) @ x.double()) < 0.005


@gpu_test
def test_an_epilogue_adds_bias_and_residual_on_the_accumulator(snippet: Snippet) -> None:
    a, b, residual, c = (
        normal(*s, dtype=torch.bfloat16) for s in ((256, 192), (128, 192), (256, 128), (256, 128))
    )
    bias, module = normal(128, dtype=torch.bfloat16), snippet("epilogue-fusion")
    launch(module.gemm, a, b, bias, residual, c, constants=(module.silu_of_sum,))
    z = a.double() @ b.double().T + bias.double()
    assert error(c, z * torch.sigmoid(z) + residual.double()) < 0.005


@gpu_test
@pytest.mark.parametrize("ahead", [1, 4])
def test_loads_ahead_change_no_sum(ahead: int, snippet: Snippet) -> None:
    x, sums = normal(8, 16384, dtype=torch.bfloat16), torch.empty(8, 128, device="cuda")
    launch(snippet("unrolling").row_sum, x, sums, constants=(ahead,))
    assert error(sums.sum(1), x.double().sum(1)) < 1e-4


@gpu_test
@pytest.mark.parametrize(("form", "bound"), [("silu_exact", 1e-6), ("silu_two", 1e-5), ("silu_one", 2e-3)])
def test_each_form_of_silu_is_as_accurate_as_it_says(form: str, bound: float, snippet: Snippet) -> None:
    x, module = 4 * normal(65536), snippet("sfu-bound")
    y = torch.empty_like(x)
    launch(module.run, x, y, constants=(getattr(module, form),))
    assert error(y, torch.nn.functional.silu(x.double())) < bound


@gpu_test
def test_the_swizzled_transposition_is_exact(snippet: Snippet) -> None:
    x, y = normal(256, 512), torch.empty(512, 256, device="cuda")
    launch(snippet("bank-conflicts").transpose, x, y)
    assert torch.equal(y, x.T)


@gpu_test
def test_one_step_of_the_gated_delta_rule(snippet: Snippet) -> None:
    import cutlass

    q, k = (torch.nn.functional.normalize(normal(3, 4, 128), dim=-1).bfloat16() for _ in range(2))
    v, state = normal(3, 8, 128, dtype=torch.bfloat16), normal(3, 8, 128, 128)
    log_decay, beta = -torch.rand(3, 8, device="cuda"), torch.rand(3, 8, device="cuda")
    output, new = torch.empty_like(v), torch.empty_like(state)
    launch(snippet("gdn-decode").step, q, k, v, state, log_decay, beta, output, new, cutlass.Float32(0.088))
    q, k = (t.double().repeat_interleave(2, 1)[..., None] for t in (q, k))
    exact = state.double() * log_decay.double().exp()[..., None, None]
    exact = exact + beta.double()[..., None, None] * (v.double()[..., None] - exact @ k) @ k.mT
    assert error(new, exact) < 1e-5
    assert error(output, 0.088 * (exact @ q)[..., 0]) < 0.005


@gpu_test
@pytest.mark.parametrize("rows", [1, 4])
def test_a_skinny_product(rows: int, snippet: Snippet) -> None:
    a, b = normal(rows, 1024, dtype=torch.bfloat16), normal(512, 1024, dtype=torch.bfloat16)
    c = torch.empty(rows, 512, dtype=torch.bfloat16, device="cuda")
    launch(snippet("skinny-gemm").skinny, a, b, c, constants=(rows,))
    assert error(c, a.double() @ b.double().T) < 0.005


@gpu_test
def test_softmax_survives_large_logits(snippet: Snippet) -> None:
    x = (10 * normal(64, 4096)).bfloat16()
    x[3, 100] = 1000.0
    y = torch.empty_like(x)
    launch(snippet("softmax").softmax, x, y)
    assert error(y, torch.softmax(x.double(), -1)) < 0.005


@gpu_test
def test_the_histogram_finds_the_bin_of_the_kth_largest(snippet: Snippet) -> None:
    import cutlass

    scores, found = normal(16, 5800), torch.empty(16, 2, dtype=torch.int32, device="cuda")
    launch(snippet("topk-indexer").threshold, scores, found, cutlass.Int32(2048))
    bits = scores.view(torch.int32).long() & 0xFFFFFFFF
    digits = torch.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000) >> 24
    kth = digits.sort(1, descending=True).values[:, 2047]
    assert torch.equal(found[:, 0].long(), kth)
    assert torch.equal(found[:, 1].long(), (digits > kth[:, None]).sum(1))


@gpu_test
def test_quantised_values_times_their_scales_give_the_input_back(snippet: Snippet) -> None:
    import cuda.bindings.driver as cuda
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    x = normal(64, 7168, dtype=torch.bfloat16)
    x[5] = 0
    q, scales = torch.empty(64, 7168, dtype=torch.uint8, device="cuda"), torch.empty(64, 56, device="cuda")
    given = [from_dlpack(t, assumed_align=16) for t in (x, q, scales)]
    given[1].element_type = cutlass.Float8E4M3FN  # DLPack has no such type
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    cute.compile(snippet("fp8-quantisation").quantise, *given, stream)(*given, stream)
    torch.cuda.synchronize()
    back = q.view(torch.float8_e4m3fn).double().view(64, 56, 128) * scales.double()[..., None]
    assert error(back.view(64, 7168), x.double()) < 0.04


@gpu_test
def test_an_atomic_count_of_positive_values(snippet: Snippet) -> None:
    x, count = normal(1024), torch.zeros(1, dtype=torch.int32, device="cuda")
    launch(snippet("invented-names").count_positive, x, count)
    assert int(count) == int((x > 0).sum())


@gpu_test
def test_a_wait_with_a_limit_passes_where_all_arrive(snippet: Snippet) -> None:
    x, y = torch.arange(32.0, device="cuda"), torch.zeros(96, device="cuda")
    launch(snippet("hangs").hand_over, x, y, options="--enable-assertions")
    assert torch.equal(y, x.repeat(3))
