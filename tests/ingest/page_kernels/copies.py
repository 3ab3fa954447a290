"""Pages whose kernels mostly copy: how tiles, hints, predicates and launches are written."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_kernels.frame import F32, case, empty, normal, view


@case()
def tiled_copy(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(32, 4096), empty(32, 4096)
    page.silu(view(x), view(y), stream)
    return y, torch.nn.functional.silu(x.double())


@case()
def predication(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The last tile of a row is ragged; so is the last vector group of a thread."""
    x, y = normal(5, 3000), empty(5, 3000)
    page.copy(view(x), view(y), stream)
    return y, x


@case()
def shared_storage(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(128, 192), empty(192, 128)
    page.transpose(view(x), view(y), stream)
    return y, x.T


@case()
def cache_hints(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    table, out = normal(40, page.THREADS * page.VECTOR), empty(100, page.THREADS * page.VECTOR)
    index = torch.arange(100, dtype=torch.int32, device="cuda") * 7 % 40
    page.gather(*map(view, (table, index, out)), stream)
    return out, table[index.long()]


@case()
def l2_prefetch(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Eleven tiles: the prefetches run out before the loads do."""
    x, sums = normal(11 * 64, 256, dtype=F32) + 1, torch.zeros(256, device="cuda")
    page.column_sum(view(x), view(sums), stream)
    return sums, x.double().sum(0)


@case()
def programmatic_dependent_launch(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, bias, y, z = normal(1 << 20, dtype=F32), normal(1 << 20, dtype=F32) + 3, *empty(2, 1 << 20, dtype=F32)
    page.scale_add(*map(view, (x, bias, y, z)), stream)
    return z, x.double() * 2 + bias.double()


@case()
def persistent_kernels(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Bands of four columns, the last one of two, walked down by thirteen CTAs."""
    import cutlass

    order = torch.full((7, 10), -1, dtype=torch.int32, device="cuda")
    page.record(view(order), 4, cutlass.Int32(13), stream)
    want = torch.empty(7, 10)
    for index in range(70):
        band, within = divmod(index, 7 * 4)
        width = min(4, 10 - 4 * band)
        want[within // width, 4 * band + within % width] = index
    return order, want.cuda()


@case()
def tail_waves(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    x = normal(31 * 1024, dtype=F32)
    want = -x.double()
    page.negate(view(x), cutlass.Int32(7), stream)
    return x, want


@case()
def software_exp2(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Each error in units of its value, which the page says is below 1e-4 for the polynomial."""
    x = normal(1 << 16, dtype=F32) * 20
    y = empty(1 << 16, dtype=F32)
    page.exp2(view(x), view(y), stream)
    return y.double() / x.double().exp2(), torch.ones(1 << 16, device="cuda")
