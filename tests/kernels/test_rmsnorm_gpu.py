"""The RMSNorm kernel's numbers on a GPU, over knobs and shapes, the ragged ones too."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels.rmsnorm_cubins import DEFAULT_KNOBS, TASK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

KNOBS: list[dict[str, Any]] = [
    {},
    {"weight_early": True, "stream_hint": True},
    {"weight_early": True, "cluster_n": 2, "threads_per_row": 128, "rows_per_cta": 2},
    {"weight_early": True, "tiles_per_cta": 4, "rows_per_cta": 4, "threads_per_row": 64},
    {"l2_hint": "x_first", "tiles_per_cta": 2},
    {"l2_hint": "x_first_output_last", "reload": True},
    {"threads_per_row": 1024},
    {"threads_per_row": 448, "min_ctas_per_sm": 2},
    {"threads_per_row": 224, "rows_per_cta": 2},
    {"threads_per_row": 64, "rows_per_cta": 8, "vector_bits": 64},
    {"threads_per_row": 32, "rows_per_cta": 4, "reload": True},
    {"reload": True, "stream_hint": True},
    {"vector_bits": 256},
    {"tiles_per_cta": 2},
    {"tiles_per_cta": 8, "rows_per_cta": 2, "threads_per_row": 128},
    {"tiles_per_cta": 4, "rows_per_cta": 4, "threads_per_row": 64},
    {"cluster_n": 2},
    {"cluster_n": 4, "threads_per_row": 128, "rows_per_cta": 2},
    {"cluster_n": 8, "threads_per_row": 32, "rows_per_cta": 4, "tiles_per_cta": 4},
    {"cluster_n": 2, "threads_per_row": 512, "rows_per_cta": 2, "tiles_per_cta": 8},
    {"cluster_n": 4, "threads_per_row": 64, "reload": True},
]


@pytest.fixture(scope="module")
def build() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("rmsnorm_kernel", TASK / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rmsnorm_kernel"] = module
    spec.loader.exec_module(module)
    return module.build  # type: ignore[no-any-return]


def inputs(tokens: int, hidden: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    x = torch.randn(tokens, hidden, device="cuda") * torch.logspace(-3, 3, tokens, device="cuda")[:, None]
    return x.bfloat16(), torch.randn(hidden, device="cuda").bfloat16()


def expected(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x64 = x.double()
    return x64 * torch.rsqrt(x64.square().mean(-1, keepdim=True) + 1e-6) * weight.double()


def assert_rounded(output: torch.Tensor, reference: torch.Tensor) -> None:
    """Within one unit in the last place of bfloat16, half of which is the rounding itself."""
    torch.testing.assert_close(output.double(), reference, rtol=2**-8, atol=1e-30)


@pytest.mark.parametrize("hidden", [1000, 2048, 5120, 7168, 8192])
@pytest.mark.parametrize(
    "knobs", KNOBS, ids=lambda k: ",".join(f"{n}={v}" for n, v in k.items()) or "default"
)
def test_every_row_is_right_and_nothing_else_is_written(
    build: Callable[..., Any], knobs: dict[str, Any], hidden: int
) -> None:
    knobs = DEFAULT_KNOBS | knobs
    if hidden * 16 % knobs["vector_bits"]:
        knobs["vector_bits"] = 64
    if (knobs["cluster_n"] - 1) * knobs["threads_per_row"] * knobs["vector_bits"] >= hidden * 16:
        with pytest.raises(ValueError, match="without work"):
            build({"hidden_size": hidden}, knobs)
        return
    launch = build({"hidden_size": hidden}, knobs)
    for tokens in (1, 3, 16, 37, 1031):
        x, weight = inputs(tokens, hidden)
        guarded = torch.full((tokens + 16, hidden), torch.nan, dtype=torch.bfloat16, device="cuda")
        launch(x, weight, guarded[:tokens])
        assert_rounded(guarded[:tokens], expected(x, weight))
        assert guarded[tokens:].isnan().all()


@pytest.mark.parametrize("knobs", [{}, {"cluster_n": 4, "tiles_per_cta": 4, "threads_per_row": 128}])
def test_many_rows_give_the_same_result_run_after_run(
    build: Callable[..., Any], knobs: dict[str, Any]
) -> None:
    x, weight = inputs(32768, 7168)
    launch = build({"hidden_size": 7168}, DEFAULT_KNOBS | knobs)
    first, again = torch.empty_like(x), torch.empty_like(x)
    launch(x, weight, first)
    assert_rounded(first, expected(x, weight))
    for _ in range(20):
        again.fill_(torch.nan)
        launch(x, weight, again)
        assert torch.equal(first, again)


@pytest.mark.parametrize("knobs", [{}, {"cluster_n": 2}])
def test_a_captured_graph_computes_from_the_values_of_its_replay(
    build: Callable[..., Any], knobs: dict[str, Any]
) -> None:
    x, weight = inputs(128, 4096)
    output = torch.empty_like(x)
    launch = build({"hidden_size": 4096}, DEFAULT_KNOBS | knobs)
    launch(x, weight, output)  # loads the module, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(x, weight, output)
    x.copy_(inputs(128, 4096, seed=1)[0])
    output.fill_(torch.nan)
    graph.replay()
    assert_rounded(output, expected(x, weight))


def test_no_rows_are_no_work(build: Callable[..., Any]) -> None:
    x, weight = inputs(0, 2048)
    build({"hidden_size": 2048}, DEFAULT_KNOBS)(x, weight, torch.empty_like(x))
    torch.cuda.synchronize()


def test_a_tensor_that_vectors_cannot_reach_is_refused_before_the_launch(build: Callable[..., Any]) -> None:
    x, weight = inputs(4, 2048)
    shifted = torch.empty(4 * 2048 + 1, dtype=torch.bfloat16, device="cuda")[1:].view(4, 2048)
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        build({"hidden_size": 2048}, DEFAULT_KNOBS)(x, weight, shifted)
