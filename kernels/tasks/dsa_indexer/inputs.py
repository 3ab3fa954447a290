"""A paged fp8 cache in which each sequence has pages of its own, in no order."""

import torch

FP8_MAX = 448.0
LEAST_AMAX = 1e-4


def layout(axes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """The longest sequence ends in the last column of the table; the others are of any length."""
    batch, most, page = axes["batch_size"], axes["max_num_pages"], axes["page_size"]
    lengths = torch.randint(1, most * page + 1, (batch,), generator=generator)
    longest = int(torch.randint(batch, (1,), generator=generator))
    lengths[longest] = (most - 1) * page + torch.randint(1, page + 1, (1,), generator=generator)
    table = torch.randperm(axes["num_pages"], generator=generator)[: batch * most].reshape(batch, most)
    table[torch.arange(most) * page >= lengths[:, None]] = 0
    return {"seq_lens": lengths.int(), "block_table": table.int()}


def values(axes: dict[str, int], generator: torch.Generator, spread: float) -> dict[str, torch.Tensor]:
    """Keys are normal numbers of standard deviation `spread`, scaled by their largest; queries and weights
    are the judge's plain ones.

    Per page all fp8 values come first, then all float32 scales.
    """
    pages, page, width = axes["num_pages"], axes["page_size"], axes["index_head_dim"]
    device = generator.device
    cache = torch.empty(pages, page * (width + 4), dtype=torch.uint8, device=device)
    keys = torch.randn(pages, page, width, generator=generator, device=device) * spread
    scales = keys.abs().amax(-1).clamp_min(LEAST_AMAX) / FP8_MAX
    keys = (keys / scales[..., None]).to(torch.float8_e4m3fn)
    cache[:, : page * width] = keys.view(torch.uint8).flatten(1)
    cache[:, page * width :] = scales.view(torch.uint8)
    return {"k_index_cache_fp8": cache.view(torch.int8).reshape(pages, page, 1, width + 4)}
