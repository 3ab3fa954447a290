"""PyTorch calls: weights are widened to bfloat16 one expert at a time, products are cuBLAS's.

Which tokens an expert has must be known on the host.
"""

import torch

GROUPS, GROUPS_KEPT, EXPERTS_PER_TOKEN = 8, 4, 8


def run(
    routing_logits: torch.Tensor,
    routing_bias: torch.Tensor,
    hidden_states: torch.Tensor,
    hidden_states_scale: torch.Tensor,
    gemm1_weights: torch.Tensor,
    gemm1_weights_scale: torch.Tensor,
    gemm2_weights: torch.Tensor,
    gemm2_weights_scale: torch.Tensor,
    local_expert_offset: int,
    routed_scaling_factor: float,
) -> torch.Tensor:
    """Shapes as in the reference; output bfloat16."""
    scores = routing_logits.sigmoid()
    biased = (scores + routing_bias).unflatten(-1, (GROUPS, -1))
    order = biased.topk(2, dim=-1).values.sum(-1).argsort(dim=-1, descending=True)
    dropped = torch.ones_like(order, dtype=torch.bool).scatter(-1, order[:, :GROUPS_KEPT], False)
    chosen = biased.masked_fill(dropped[..., None], -torch.inf).flatten(-2).topk(EXPERTS_PER_TOKEN).indices
    weights = torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))
    weights *= routed_scaling_factor / weights.sum(-1, keepdim=True)

    x = _widen(hidden_states, hidden_states_scale.T)
    output = torch.zeros(hidden_states.shape, device=hidden_states.device)
    for local in range(gemm1_weights.shape[0]):
        share = weights[:, local_expert_offset + local]
        tokens = share.nonzero().squeeze(-1)
        if not len(tokens):
            continue
        both = x[tokens] @ _widen(gemm1_weights[local], gemm1_weights_scale[local]).T
        linear, gate = both.float().chunk(2, dim=-1)
        hidden = (torch.nn.functional.silu(gate) * linear).bfloat16()
        out = hidden @ _widen(gemm2_weights[local], gemm2_weights_scale[local]).T
        output.index_add_(0, tokens, share[tokens, None] * out.float())
    return output.bfloat16()


def _widen(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    blocks = values.float().reshape(scales.shape[0], -1, scales.shape[1], values.shape[1] // scales.shape[1])
    return (blocks * scales[:, None, :, None]).reshape(values.shape).bfloat16()
