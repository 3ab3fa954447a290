"""PyTorch calls: weights are widened to bfloat16 one expert at a time, products are cuBLAS's.

How many tokens each expert has must be known on the host.
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

    local = chosen - local_expert_offset
    here = (local >= 0) & (local < gemm1_weights.shape[0])
    tokens, _ = torch.where(here)
    expert, order = local[here].sort(stable=True)
    weights = scores.gather(-1, chosen)
    weights *= routed_scaling_factor / weights.sum(-1, keepdim=True)
    tokens, share = tokens[order], weights[here][order]

    x = _widen(hidden_states, hidden_states_scale.T)[tokens]
    output = torch.zeros(hidden_states.shape, device=hidden_states.device)
    first = 0
    for number, count in enumerate(torch.bincount(expert, minlength=gemm1_weights.shape[0]).tolist()):
        if not count:
            continue
        some = slice(first, first + count)
        both = x[some] @ _widen(gemm1_weights[number], gemm1_weights_scale[number]).T
        linear, gate = both.float().chunk(2, dim=-1)
        hidden = (torch.nn.functional.silu(gate) * linear).bfloat16()
        out = hidden @ _widen(gemm2_weights[number], gemm2_weights_scale[number]).T
        output.index_add_(0, tokens[some], share[some, None] * out.float())
        first += count
    return output.bfloat16()


def _widen(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Each block times its scale, in bfloat16; multiplied in float32 without a copy in float32."""
    blocks = values.bfloat16().reshape(
        scales.shape[0], -1, scales.shape[1], values.shape[1] // scales.shape[1]
    )
    return torch.mul(blocks, scales[:, None, :, None], out=torch.empty_like(blocks)).reshape(values.shape)
