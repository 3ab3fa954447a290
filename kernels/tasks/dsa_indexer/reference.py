"""Scores of all cached positions of a sequence, and the best of them as slots of the paged cache."""

import torch


def run(
    q_index_fp8: torch.Tensor,
    k_index_cache_fp8: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
) -> torch.Tensor:
    """[B, topk] int32 slots, best first, -1 where a sequence is shorter.

    q_index_fp8 [B, heads, D]; k_index_cache_fp8 [pages, page, 1, D + 4] bytes; weights [B, heads];
    seq_lens [B]; block_table [B, max pages], the pages of each sequence in order.
    """
    topk = 2048
    slots, scores = candidates(
        q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table, dtype=torch.float32
    )
    chosen = torch.full((len(slots), topk), -1, dtype=torch.int32, device=slots.device)
    best = scores.topk(min(topk, scores.shape[1])).indices
    chosen[:, : best.shape[1]] = slots.gather(1, best)
    return chosen


def candidates(
    q_index_fp8: torch.Tensor,
    k_index_cache_fp8: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
    *,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots and scores, both [B, max pages * page]; -1 and -inf beyond a sequence's end."""
    page = k_index_cache_fp8.shape[1]
    positions = torch.arange(block_table.shape[1] * page, device=block_table.device)
    slots = block_table[:, positions // page] * page + (positions % page).int()
    scores = torch.full(slots.shape, -torch.inf, dtype=dtype, device=slots.device)
    for row, length in enumerate(seq_lens.tolist()):
        pages = block_table[row, : -(-length // page)].long()
        keys = _keys(k_index_cache_fp8[pages], q_index_fp8.shape[-1], dtype)[:length]
        products = torch.relu(q_index_fp8[row].to(dtype) @ keys.T)
        scores[row, :length] = weights[row].to(dtype) @ products
    return slots.masked_fill(positions >= seq_lens[:, None], -1), scores


def _keys(pages: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """[positions, D]: a page holds the fp8 values of all its positions, then a float32 scale for each."""
    raw = pages.contiguous().view(torch.uint8).flatten(1)
    size = pages.shape[1]
    values = raw[:, : size * width].contiguous().view(torch.float8_e4m3fn).unflatten(1, (size, width))
    scales = raw[:, size * width :].contiguous().view(torch.float32)
    return (values.to(dtype) * scales[..., None].to(dtype)).flatten(0, 1)


def work(axes: dict[str, int], layout: dict[str, torch.Tensor]) -> dict[str, object]:
    """A sequence no longer than `topk` needs no scores: all its positions are chosen."""
    batch, heads, width = axes["batch_size"], axes["num_index_heads"], axes["index_head_dim"]
    lengths = layout["seq_lens"].long()
    scored = lengths[lengths > axes["topk"]]
    pages = int((-(-lengths // axes["page_size"])).sum())
    return {
        "bytes_read": int(scored.sum()) * (width + 4)
        + len(scored) * heads * (width + 4)
        + 4 * (batch + pages),
        "bytes_written": 4 * batch * axes["topk"],
        "flops": int(scored.sum()) * 2 * heads * width,
        "precision": "fp8",
    }
