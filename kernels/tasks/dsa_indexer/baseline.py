"""PyTorch calls on gathered pages: a batched product and a top-k; nothing waits for the host."""

import torch

TOPK = 2048


def run(
    q_index_fp8: torch.Tensor,
    k_index_cache_fp8: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    block_table: torch.Tensor,
) -> torch.Tensor:
    """Shapes as in the reference."""
    batch, _, width = q_index_fp8.shape
    page = k_index_cache_fp8.shape[1]
    split = page * width
    raw = k_index_cache_fp8.view(torch.uint8).flatten(1)[block_table.flatten()]
    keys = raw[:, :split].contiguous().view(torch.float8_e4m3fn).reshape(batch, -1, width)
    scales = raw[:, split:].contiguous().view(torch.float32).reshape(batch, -1)
    # fp8 values are exact in bfloat16; the scale is positive and so may follow the relu.
    products = torch.bmm(q_index_fp8.bfloat16(), keys.bfloat16().mT).float().relu()
    scores = torch.bmm(weights[:, None], products).squeeze(1) * scales
    positions = torch.arange(scores.shape[1], device=scores.device)
    scores = scores.masked_fill(positions >= seq_lens[:, None], -torch.inf)
    best, where = scores.topk(min(TOPK, scores.shape[1]))
    slots = block_table.gather(1, where // page) * page + where % page
    slots = slots.masked_fill(best == -torch.inf, -1).int()
    return torch.nn.functional.pad(slots, (0, TOPK - slots.shape[1]), value=-1)
