"""Pages on barriers and on who takes part."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_kernels.frame import F32, case, empty, normal, view


@case()
def mbarriers(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, sums = normal(100, 8192, dtype=F32) + 1, empty(8192, dtype=F32)
    page.column_sum(view(x), view(sums), stream)
    return sums, x.double().sum(0)


@case()
def named_barriers(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """An odd count of rows: one of the two groups has one row more."""
    import cutlass

    x, y = normal(1001, page.COLUMNS), empty(1001, page.COLUMNS)
    page.scale_rows(view(x), view(y), cutlass.Int32(132), stream)
    return y, x.double() / x.double().abs().amax(1, keepdim=True)


@case()
def elect_one(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(300, page.COLUMNS), empty(500, page.COLUMNS)
    index = torch.arange(500, dtype=torch.int32, device="cuda") * 7 % 300
    page.gather_rows(*map(view, (x, index, y)), stream)
    return y, x[index.long()]


@case()
def register_reallocation(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """What the two groups of consumers write; the producers' column is theirs alone."""
    x, y = normal(64, 512, dtype=F32), torch.zeros(384, 512, device="cuda")
    page.outer_sum(view(x), view(y), 1, stream)
    return y[128:, : page.VALUES], (x.double().T @ x.double())[128:384, : page.VALUES]
