"""PyTorch calls on gathered keys; padding is gathered too and masked, so nothing waits for the host.

In float32, since a product in bfloat16 rounds the logits: wrong by 5 % where they are large.
"""

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
    """Shapes as in the reference; output bfloat16, log-sum-exp float32."""
    slots = sparse_indices.clamp_min(0)
    latent = ckv_cache.flatten(0, 1)[slots].float()
    rotary = kpe_cache.flatten(0, 1)[slots].float()
    logits = sm_scale * (torch.bmm(q_nope.float(), latent.mT) + torch.bmm(q_pe.float(), rotary.mT))
    logits = logits.masked_fill((sparse_indices < 0)[:, None], -torch.inf)
    lse = logits.logsumexp(-1, keepdim=True)
    output = torch.bmm((logits - lse).exp(), latent)
    return output.to(q_nope.dtype), lse.squeeze(-1) / math.log(2)
