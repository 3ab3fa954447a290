"""Pages on techniques, patterns, pitfalls and whole kernels."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_kernels.frame import F32, FP8, case, empty, normal, view


def same(got: torch.Tensor, want: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For integers, of which each must be right."""
    right = got.long() == want.long()
    return right.double(), torch.ones_like(right, dtype=torch.float64)


@case()
def ragged_schedulers(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    sizes = torch.tensor([0, 5, 64, 65, 0, 1, 700, 128], device="cuda")
    ends, scales, x = sizes.cumsum(0).int(), normal(8, dtype=F32), normal(963, 200, dtype=F32)
    want = x.double() * scales.double().repeat_interleave(sizes)[:, None]
    page.scale(*map(view, (x, ends, scales)), cutlass.Int32(7), stream)
    return x, want


@case()
def grouped_gemm(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact: the group and the first row of every tile, among empty groups."""
    import cutlass

    sizes = [0, 130, 64, *range(1, 28), 0, 5]
    ends = list(itertools.accumulate(sizes))
    tiles = [
        [group, end - size + row]
        for group, (size, end) in enumerate(zip(sizes, ends, strict=True))
        for row in range(0, size, page.TILE_M)
    ]
    found = torch.full((len(tiles), 2), -1, dtype=torch.int32, device="cuda")
    page.who(*map(view, (torch.tensor(ends, dtype=torch.int32).cuda(), found)), cutlass.Int32(5), stream)
    return same(found, torch.tensor(tiles, device="cuda"))


@case()
def unrolling(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, sums = normal(8, 16384) + 1, empty(2, 8, page.THREADS, dtype=F32)
    for ahead, part in zip((1, 4), sums, strict=True):
        page.row_sum(view(x), view(part), ahead, stream)
    return sums.sum(2), x.double().sum(1).expand(2, 8)


@case()
def sfu_bound(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(65536, dtype=F32) * 4, empty(3, 65536, dtype=F32)
    for form, part in zip((page.silu_exact, page.silu_two, page.silu_one), y, strict=True):
        page.run(view(x), view(part), form, stream)
    return y, torch.nn.functional.silu(x.double()).expand(3, 65536)


@case()
def register_pressure(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(16, 8192), empty(2, 16, 8192)
    for sliced, part in zip((False, True), y, strict=True):
        page.gate(view(x), view(part), sliced, stream)
    return y, torch.nn.functional.silu(x.double()).expand(2, 16, 8192)


@case()
def bank_conflicts(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(256, 512, dtype=F32), empty(512, 256, dtype=F32)
    page.transpose(view(x), view(y), stream)
    return y, x.T


@case()
def skinny_gemm(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = normal(4, 1024), normal(512, 1024), empty(4, 512)
    page.skinny(*map(view, (a, b, c)), 4, stream)
    return c, a.double() @ b.double().T


@case()
def topk_indexer(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact: the highest 8 bits of the 2048th score's key, and how many keys have higher ones."""
    import cutlass

    scores, found = normal(16, 5800, dtype=F32), torch.full((16, 2), -1, dtype=torch.int32, device="cuda")
    page.threshold(view(scores), view(found), cutlass.Int32(2048), stream)
    bits = scores.view(torch.int32).long() & 0xFFFFFFFF
    digits = torch.where(bits >> 31 == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000) >> 24
    kth = digits.sort(1, descending=True).values[:, 2047:2048]
    return same(found, torch.cat([kth, (digits > kth).sum(1, keepdim=True)], dim=1))


@case()
def fp8_quantisation(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The scales, and the values as they must round under them."""
    x, q, scales = normal(64, 7168), empty(64, 7168, dtype=FP8), empty(64, 56, dtype=F32)
    x[5] = 0
    page.quantise(*map(view, (x, q, scales)), stream)
    blocks = x.float().view(64, 56, 128)
    exact = blocks.abs().amax(2).clamp(min=page.TINY) / page.LARGEST
    rounded = (blocks / exact[..., None]).to(FP8).double() * exact.double()[..., None]
    back = q.double().view(64, 56, 128) * scales.double()[..., None]
    return torch.cat([back.flatten(), scales.double().flatten()]), torch.cat(
        [rounded.flatten(), exact.flatten()]
    )


@case()
def invented_names(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, count = normal(1024, dtype=F32), torch.zeros(1, dtype=torch.int32, device="cuda")
    page.count_positive(view(x), view(count), stream)
    return same(count, (x > 0).sum().reshape(1))


@case()
def hangs(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(32, dtype=F32), empty(96, dtype=F32)
    page.hand_over(view(x), view(y), stream)
    return y, x.repeat(3)


@case()
def launch_overhead(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, total = normal(300, 256, dtype=F32), empty(300, 256, dtype=F32), empty(256, dtype=F32)
    page.chain(*map(view, (x, y, total)), stream)
    return total, (x.double() ** 2).sum(0)
