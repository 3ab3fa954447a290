"""Pages on matrix products, copies, pipelines and barriers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from tests.ingest.page_kernels.frame import F16, F32, FP8, case, empty, normal, view


def _gemm(page: ModuleType, stream: Any, *extra: int) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    a, b, c = normal(512, 384), normal(1024, 384), empty(512, 1024)
    page.gemm(*map(view, (a, b, c)), *map(cutlass.Int32, extra), stream)
    return c, a.double() @ b.double().T


@case()
def warp_specialised_gemm(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _gemm(page, stream)


@case()
def cooperative_and_ping_pong(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _gemm(page, stream, 7)


@case()
def persistent_gemm_on_hopper(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _gemm(page, stream, 5)


@case()
def fp8_promotion_on_hopper(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = 256, 384, page.K
    a, b = normal(m, k, dtype=FP8), normal(n, k, dtype=FP8)
    scale_a = (normal(k // 128, m, dtype=F32).abs() + 0.5).T
    scale_b = normal(n // 128, k // 128, dtype=F32).abs() + 0.5
    c = empty(m, n)
    page.scaled_gemm(*map(view, (a, b, c, scale_a, scale_b)), stream)
    full_a = a.double() * scale_a.double().repeat_interleave(128, 1)
    full_b = b.double() * scale_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    return c, full_a @ full_b.T


@case()
def wgmma(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = normal(256, 512), normal(384, 512), empty(256, 384)
    page.tile_product(*map(view, (a, b, c)), stream)
    return c, a.double() @ b.double().T


@case()
def warp_mma(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, c = normal(128, 192), normal(256, 192), empty(128, 256)
    page.product(*map(view, (a, b, c)), stream)
    return c, a.double() @ b.double().T


@case()
def epilogue_fusion(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, bias, residual, c = normal(64, 96), normal(48, 96), normal(48), normal(64, 48), empty(64, 48)
    page.gemm(*map(view, (a, b, bias, residual, c)), lambda acc, bias, _: acc + bias, stream)
    return c, a.double() @ b.double().T + bias.double()


@case()
def register_operands(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    w, x, c = normal(128, 512, dtype=FP8), normal(192, 512, dtype=F16), empty(128, 192, dtype=F16)
    packed = empty(2, 8, page.THREADS, page.VALUES, dtype=FP8).permute(3, 2, 1, 0)
    page.pack(view(w), view(packed), stream)
    page.product(view(packed), view(x), view(c), stream)
    return c, w.double() @ x.double().T


@case()
def attention_on_hopper(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    heads, queries, keys, scale = 3, 256, 384, 0.1
    q, k, v = (normal(heads, length, page.DIM) for length in (queries, keys, keys))
    o = empty(heads, queries, page.DIM)
    page.attention(*(view(t.permute(1, 2, 0)) for t in (q, k, v, o)), cutlass.Float32(scale), stream)
    scores = (q.double() @ k.double().transpose(1, 2) * scale).softmax(-1)
    return o, scores @ v.double()


@case()
def online_softmax(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, y = normal(64, 2048) * 6, normal(2048), empty(64, dtype=F32)
    page.expectation(*map(view, (x, w, y)), stream)
    return y, x.double().softmax(-1) @ w.double()


@case()
def softmax(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(48, page.WIDTH) * 4, empty(48, page.WIDTH)
    page.softmax(view(x), view(y), stream)
    return y, x.double().softmax(-1)


@case()
def rmsnorm(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    x, w, y = normal(48, page.HIDDEN) * 4, normal(page.HIDDEN), empty(48, page.HIDDEN)
    page.rmsnorm(*map(view, (x, w, y)), cutlass.Float32(1e-6), stream)
    return y, x.double() * (x.double().square().mean(1, keepdim=True) + 1e-6).rsqrt() * w.double()


@case()
def dequantisation(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    n, k = 64, 1024
    generator = torch.Generator("cuda").manual_seed(0)
    weights = torch.randint(-8, 8, (n, k), generator=generator, device="cuda")
    pairs = (weights + 8).view(n, k // 8, 4, 2)  # nibbles j and j + 4 of a word are neighbours
    shifts = torch.tensor([[4 * j, 4 * j + 16] for j in range(4)], device="cuda")
    words = (pairs << shifts).sum((2, 3))
    words = torch.where(words >= 2**31, words - 2**32, words).int()
    scales, x, y = normal(n, k // page.GROUP, dtype=F32), normal(k), empty(n)
    page.gemv(*map(view, (words, scales, x, y)), stream)
    return y, (weights * scales.double().repeat_interleave(page.GROUP, 1)) @ x.double()


@case()
def gdn_decode(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The new state and the output, each in units of its norm."""
    import cutlass

    batch, heads, size, scale = 3, page.V_HEADS, page.SIZE, 0.088
    q, k = (normal(batch, page.QK_HEADS, size) / size**0.5 for _ in range(2))
    v, s = normal(batch, heads, size), normal(batch, heads, size, size, dtype=F32)
    log_decay, beta = -normal(batch, heads, dtype=F32).abs(), normal(batch, heads, dtype=F32).sigmoid()
    o, new = empty(batch, heads, size), empty(batch, heads, size, size, dtype=F32)
    tensors = map(view, (q, k, v, s, log_decay, beta, o, new))
    page.step(*tensors, cutlass.Float32(scale), stream)
    full_q, full_k = (t.double().repeat_interleave(heads // page.QK_HEADS, 1) for t in (q, k))
    state = s.double() * log_decay.double().exp()[..., None, None]
    error = v.double() - (state @ full_k[..., None])[..., 0]
    state = state + beta.double()[..., None, None] * error[..., :, None] * full_k[..., None, :]
    want = (state, (state @ full_q[..., None])[..., 0] * scale)
    units = [part.norm() for part in want]
    return (
        torch.cat([(part.double() / unit).flatten() for part, unit in zip((new, o), units, strict=True)]),
        torch.cat([(part / unit).flatten() for part, unit in zip(want, units, strict=True)]),
    )


@case()
def cp_async(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, sums = normal(200, 4096, dtype=F32), empty(4096, dtype=F32)
    page.column_sum(view(x), view(sums), stream)
    return sums, x.double().sum(0)


@case()
def pipeline_async(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    q, scale = (normal(100, 4096) * 40).to(torch.int8), normal(100, dtype=F32)
    sums = empty(4096, dtype=F32)
    page.column_sum(*map(view, (q, scale, sums)), stream)
    return sums, (q.double() * scale.double()[:, None]).sum(0)


@case()
def pipeline_tma_async(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, dot = normal(160, 4096, dtype=F32), normal(160, 4096, dtype=F32) + 1, empty(4096, dtype=F32)
    page.column_dot(*map(view, (x, y, dot)), stream)
    return dot, (x.double() * y.double()).sum(0)


@case()
def pipeline_tail(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Persistent: five CTAs walk over 32 tiles of columns, each of six steps through a ring of four."""
    import cutlass

    x, largest = normal(96, 4096, dtype=F32), empty(4096, dtype=F32)
    page.column_max(*map(view, (x, largest)), cutlass.Int32(5), stream)
    return largest, x.double().amax(0)


@case()
def fences(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, partials = normal(100_000, dtype=F32) + 1, empty(40, dtype=F32)
    ticket, total = torch.zeros(1, dtype=torch.int32, device="cuda"), empty(1, dtype=F32)
    for _ in range(2):  # the first launch leaves the ticket at 0
        page.total(*map(view, (x, partials, ticket, total)), stream)
    return total, x.double().sum().reshape(1)


@case()
def warp_specialisation(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    x, largest = normal(400, page.COLUMNS), empty(400, dtype=F32)
    page.row_max(view(x), view(largest), cutlass.Int32(33), stream)
    return largest, x.double().amax(1)


@case()
def split_k(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    w, x, y = normal(256, 4096), normal(4096), empty(256)
    parts, count = empty(6, 256, dtype=F32), torch.zeros(2, dtype=torch.int32, device="cuda")
    page.gemv(*map(view, (w, x, parts, count, y)), stream)
    return y, w.double() @ x.double()


@case()
def tma_atoms(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    x, y = normal(256, 4096), empty(256, 4096)
    page.scale(view(x), view(y), cutlass.Float32(1.5), stream)
    return y, x.double() * 1.5


@case()
def tma_store(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(128, 4096), empty(128, 4096)
    page.relu(view(x), view(y), stream)
    return y, x.double().relu()


@case()
def tma_multicast(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, y = normal(4 * 64, 4096, dtype=F32), normal(64, 4096, dtype=F32), empty(4, 4096, dtype=F32)
    page.weighted_sum(*map(view, (x, w, y)), stream)
    return y, (x.double().view(4, 64, 4096) * w.double()).sum(1)


@case()
def tma_reduce(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(5, 128, 192), torch.zeros(128, 192, device="cuda")
    page.batch_sum(view(x.permute(1, 2, 0)), view(y), stream)
    return y, x.double().sum(0)


@case()
def tensormap_update(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    groups = [normal(rows, 64) for rows in (64, 1, 200, 130, 63, 65, 128)]
    sizes = [len(group) for group in groups]
    index = torch.tensor(sizes, dtype=torch.int32, device="cuda")
    first = (index.cumsum(0) - index).int()
    address = torch.tensor([group.data_ptr() for group in groups], device="cuda")
    sums = empty(sum(sizes), dtype=F32)
    maps = torch.zeros(3, 16, dtype=torch.int64, device="cuda")
    page.row_sums(*map(view, (groups[0], address, index, first, sums, maps)), stream)
    return sums, torch.cat([group.double().sum(1) for group in groups])


@case()
def swizzle_modes(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, sums = normal(256, 64), empty(256, dtype=F32)
    page.row_sum(view(x), view(sums), stream)
    return sums, x.double().sum(1)


@case()
def clusters(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, sums = normal(16, 32768), empty(16, dtype=F32)
    page.row_sum(view(x), view(sums), stream)
    return sums, x.double().sum(1)


@case()
def reductions(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = normal(64, 4096) + 2, empty(64, 4096)
    page.center(view(x), view(y), stream)
    return y, x.double() - x.double().mean(1, keepdim=True)


@case()
def numeric_types(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8, where rounding and saturation are the page's own; exact up to ties."""
    x, q, scales = normal(64, 1024), empty(64, 1024, dtype=torch.int8), empty(64, dtype=F32)
    page.quantise(*map(view, (x, q, scales)), stream)
    return q, (x.double() / scales.double()[:, None]).round().clamp(-128, 127)


@case()
def inline_ptx(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    import cutlass

    x = normal(2048, dtype=F32) * 100
    q = torch.zeros(512, dtype=torch.int32, device="cuda")
    page.quantise(view(x), view(q), cutlass.Float32(1.0), stream)
    return q.view(torch.int8), x.double().round().clamp(-128, 127)


@case()
def task_scheduling(page: ModuleType, stream: Any) -> tuple[torch.Tensor, torch.Tensor]:
    del stream  # the page launches on the default stream, which torch uses too
    x, y = normal(37, page.THREADS, dtype=F32), empty(37, page.THREADS, dtype=F32)
    page.double(view(x), view(y), page.THREADS, True)
    return y, x.double() * 2
