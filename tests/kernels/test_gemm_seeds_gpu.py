"""The numbers of the dense and the grouped GEMM seed on a GPU, over knobs and shapes, the ragged ones too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.kernels.gemm_seeds import load_seed, name_of, seed_task

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

SHAPES = [(1, 8, 8), (100, 72, 200), (129, 264, 72), (257, 1000, 4104), (1024, 1024, 64), (640, 8, 640)]
KNOBS: list[dict[str, Any]] = [
    {},
    {"cluster_m": 1, "cluster_n": 2},
    {"cluster_m": 1, "group_m": 1},
    {"tile_m": 256, "tile_n": 128, "cluster_m": 2, "cluster_n": 2},
    {"tile_n": 192, "cluster_m": 4},
    {"tile_n": 128, "stages": 6, "ping_pong": True},
    {"tile_m": 64, "ping_pong": True, "cluster_m": 1, "cluster_n": 2},
    {"tile_m": 64, "tile_n": 32, "stages": 12, "ping_pong": True, "cluster_m": 1},
    {"tile_m": 8, "tile_n": 16, "stages": 16, "cluster_m": 1},
    {"tile_m": 16, "tile_n": 144, "stages": 7, "cluster_m": 1, "cluster_n": 2},
    {"tile_m": 32, "tile_n": 112, "stages": 8, "cluster_m": 1, "ping_pong": True},
    {"tile_m": 16, "tile_n": 128, "stages": 8, "cluster_m": 1, "split_k": 2},
    {"tile_m": 64, "tile_n": 64, "stages": 12, "cluster_m": 1, "split_k": 4},
    {"tile_n": 128, "stages": 6, "cluster_m": 1, "split_k": 8},
    {"tile_n": 128, "stages": 6, "split_k": 4},
    {"tile_m": 256, "tile_n": 128, "cluster_m": 1, "cluster_n": 2, "split_k": 2},
]
GROUPS = [
    ([3, 0, 130, 1, 0, 64, 65, 0], 72, 200),
    ([0, 0, 0, 0, 0, 0, 0, 1], 8, 8),
    ([257, 0, 0, 0, 0, 0, 0, 0], 264, 136),
    ([1] * 40, 136, 72),
    ([0] * 33 + [100, 28] + [0] * 5, 520, 4104),
    ([0] * 8, 64, 64),
]
GROUPED_KNOBS: list[dict[str, Any]] = [
    {},
    {"tile_n": 128, "stages": 6, "ping_pong": True},
    {"tile_m": 64, "tile_n": 64, "stages": 12},
    {"tile_m": 256, "tile_n": 128},
    {"tile_m": 64, "tile_n": 192, "stages": 5, "ping_pong": True},
    {"tile_m": 64, "tile_n": 16, "stages": 16},
]


def knobs_of(task: str, changes: dict[str, Any]) -> dict[str, Any]:
    return {**seed_task(task)[1].default, **changes}


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").bfloat16()


def guarded(rows: int, columns: int) -> torch.Tensor:
    """An output of NaNs with more rows than the kernel may write."""
    return torch.full((rows + 256, columns), torch.nan, dtype=torch.bfloat16, device="cuda")


def assert_rounded(output: torch.Tensor, exact: torch.Tensor, k: int) -> None:
    """Within one unit in the last place of bfloat16, or the error of a float32 sum where terms cancel."""
    torch.testing.assert_close(output.double(), exact, rtol=2**-8, atol=1e-5 * k**0.5)


@pytest.mark.parametrize("changes", KNOBS, ids=name_of)
def test_every_element_is_right_and_nothing_else_is_written(changes: dict[str, Any]) -> None:
    launch = load_seed("gemm").build({}, knobs_of("gemm", changes))
    for m, n, k in SHAPES:
        a, b, c = random(m, k), random(n, k, seed=1), guarded(m, n)
        launch(a, b, c[:m])
        assert_rounded(c[:m], a.double() @ b.double().T, k)
        assert c[m:].isnan().all()


@pytest.mark.parametrize(
    "changes", [{}, {"tile_n": 128, "stages": 6, "ping_pong": True}, {"split_k": 4}], ids=name_of
)
def test_many_tiles_give_the_same_result_run_after_run(changes: dict[str, Any]) -> None:
    m, n, k = 4096, 6144, 2048
    launch = load_seed("gemm").build({}, knobs_of("gemm", changes))
    a, b = random(m, k), random(n, k, seed=1)
    first, again = (torch.empty(m, n, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    launch(a, b, first)
    assert_rounded(first, a.double() @ b.double().T, k)
    for _ in range(20):
        again.fill_(torch.nan)
        launch(a, b, again)
        assert torch.equal(first, again)


def test_a_captured_graph_computes_from_the_values_of_its_replay() -> None:
    a, b, c = random(256, 512), random(384, 512, seed=1), guarded(256, 384)[:256]
    launch = load_seed("gemm").build({}, knobs_of("gemm", {}))
    launch(a, b, c)  # loads the module, which a capture does not allow
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(a, b, c)
    a.copy_(random(256, 512, seed=2))
    c.fill_(torch.nan)
    graph.replay()
    assert_rounded(c, a.double() @ b.double().T, 512)


def test_what_tma_cannot_reach_is_refused_before_the_launch() -> None:
    launch = load_seed("gemm").build({}, knobs_of("gemm", {}))
    with pytest.raises(ValueError, match="rows must be aligned to 16 bytes"):
        launch(random(16, 12), random(16, 12), guarded(16, 16)[:16])
    with pytest.raises(ValueError, match="no axis may be empty, but M=0, N=16, K=16"):
        launch(random(0, 16), random(16, 16), guarded(0, 16)[:0])


@pytest.mark.parametrize("changes", GROUPED_KNOBS, ids=name_of)
def test_every_group_meets_its_own_matrix_and_no_row_beyond(changes: dict[str, Any]) -> None:
    knobs = knobs_of("grouped_gemm", changes)
    launches = {groups: load_seed("grouped_gemm").build({"groups": groups}, knobs) for groups in (8, 40)}
    for sizes, n, k in GROUPS:
        rows, ends = sum(sizes), list(itertools.accumulate(sizes))
        a, b, c = random(rows, k), random(len(sizes), n, k, seed=1), guarded(rows, n)
        launches[len(sizes)](a, b, torch.tensor(ends, dtype=torch.int32, device="cuda"), c[:rows])
        parts = [a[first:last].double() for first, last in itertools.pairwise([0, *ends])]
        exact = torch.cat([part @ matrix.double().T for part, matrix in zip(parts, b, strict=True)])
        assert_rounded(c[:rows], exact, k)
        assert c[rows:].isnan().all()
