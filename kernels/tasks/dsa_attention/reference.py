"""Latent attention of each token over the cache slots that its index list names."""

import math

import torch


def run(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    sparse_indices: torch.Tensor,
    sm_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `exact` in float32, rounded to the definition's dtypes."""
    output, lse = exact(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale, dtype=torch.float32)
    return output.bfloat16(), lse


def exact(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    ckv_cache: torch.Tensor,
    kpe_cache: torch.Tensor,
    sparse_indices: torch.Tensor,
    sm_scale: float,
    *,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [T, heads, ckv] and base-2 log-sum-exp [T, heads]; 0 and -inf where no slot is named.

    q_nope [T, heads, ckv]; q_pe [T, heads, kpe]; ckv_cache [pages, page, ckv]; kpe_cache [pages, page,
    kpe]; sparse_indices [T, topk], slots (page * page size + offset), -1 for none.
    """
    keys, rotary = ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1)
    output = torch.zeros(q_nope.shape, dtype=dtype, device=q_nope.device)
    lse = torch.full(q_nope.shape[:2], -torch.inf, dtype=dtype, device=q_nope.device)
    for token, indices in enumerate(sparse_indices.long()):
        slots = indices[indices >= 0]
        if not len(slots):
            continue
        latent = keys[slots].to(dtype)
        logits = q_nope[token].to(dtype) @ latent.T + q_pe[token].to(dtype) @ rotary[slots].to(dtype).T
        logits *= sm_scale
        lse[token] = logits.logsumexp(-1) / math.log(2)
        output[token] = logits.softmax(-1) @ latent
    return output, lse


def work(axes: dict[str, int], layout: dict[str, torch.Tensor]) -> dict[str, object]:
    """Cache entries that are named move once; the rest of the cache does not move."""
    tokens, heads = axes["num_tokens"], axes["num_qo_heads"]
    latent, width = axes["head_dim_ckv"], axes["head_dim_ckv"] + axes["head_dim_kpe"]
    named = layout["sparse_indices"]
    named = named[named >= 0]
    per_token = 2 * heads * width + 4 * axes["topk"]
    return {
        "bytes_read": 2 * width * len(named.unique()) + tokens * per_token,
        "bytes_written": tokens * heads * (2 * latent + 4),
        "flops": len(named) * 2 * heads * (width + latent),
        "precision": "bf16",
    }
