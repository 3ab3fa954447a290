"""Mixture of experts with grouped routing and block-scaled fp8 weights, one expert at a time.

The router works in the same dtype as the products. `inputs.py` sees to it that float32 chooses alike.
"""

import torch

GROUPS = 8
GROUPS_KEPT = 4
EXPERTS_PER_TOKEN = 8
SCORES_PER_GROUP = 2
"""A group counts for the sum of its best two scores."""


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
    """As `exact` in float32, rounded to the definition's dtypes."""
    output = exact(
        routing_logits,
        routing_bias,
        hidden_states,
        hidden_states_scale,
        gemm1_weights,
        gemm1_weights_scale,
        gemm2_weights,
        gemm2_weights_scale,
        local_expert_offset,
        routed_scaling_factor,
        dtype=torch.float32,
    )
    return output.bfloat16()


def exact(
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
    *,
    dtype: torch.dtype,
) -> torch.Tensor:
    """[T, hidden]; tokens without an expert on this rank give zeros.

    routing_logits [T, E]; routing_bias [E]; hidden_states [T, H] with one scale per token and block
    of columns, [H blocks, T]; gemm1_weights [local, 2 I, H], whose second half of rows is the gate,
    and gemm2_weights [local, H, I], each with one scale per square block.
    """
    experts, weights = route(routing_logits.to(dtype), routing_bias.to(dtype))
    output = torch.zeros(hidden_states.shape, dtype=dtype, device=hidden_states.device)
    for local in range(gemm1_weights.shape[0]):
        tokens, choice = torch.where(experts == local_expert_offset + local)
        if not len(tokens):
            continue
        x = _scaled(hidden_states[tokens].to(dtype), hidden_states_scale.T[tokens].to(dtype))
        both = x @ _scaled(gemm1_weights[local].to(dtype), gemm1_weights_scale[local].to(dtype)).T
        linear, gate = both.chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * linear
        out = hidden @ _scaled(gemm2_weights[local].to(dtype), gemm2_weights_scale[local].to(dtype)).T
        output[tokens] += routed_scaling_factor * weights[tokens, choice, None] * out
    return output


def route(logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Global expert ids and weights, both [T, 8]: the bias takes part in the choice, not in the weight."""
    scores = torch.sigmoid(logits)
    grouped = (scores + bias).unflatten(-1, (GROUPS, -1))
    worth = grouped.topk(SCORES_PER_GROUP, dim=-1).values.sum(-1)
    kept = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, worth.topk(GROUPS_KEPT).indices, True)
    biased = grouped.masked_fill(~kept[..., None], torch.finfo(scores.dtype).min).flatten(-2)
    experts = biased.topk(EXPERTS_PER_TOKEN).indices
    weights = scores.gather(-1, experts)
    return experts, weights / (weights.sum(-1, keepdim=True) + 1e-20)


def _scaled(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Each block of `values` times its scale; block sizes follow from the shapes."""
    for dim, (size, blocks) in enumerate(zip(values.shape, scales.shape, strict=True)):
        scales = scales.repeat_interleave(size // blocks, dim)
    return values * scales


def work(axes: dict[str, int], layout: dict[str, torch.Tensor]) -> dict[str, object]:
    """Weights of experts that got a token and hidden states of tokens that got an expert; all outputs."""
    hidden, inner, tokens = axes["hidden_size"], axes["intermediate_size"], axes["seq_len"]
    blocks = axes["num_hidden_blocks"]
    experts, _ = route(layout["routing_logits"].double(), layout["routing_bias"].double())
    local = experts - layout["local_expert_offset"]
    here = (local >= 0) & (local < axes["num_local_experts"])
    active = len(local[here].unique())
    weights = 3 * hidden * inner
    scales = 4 * blocks * (axes["num_gemm1_out_blocks"] + axes["num_intermediate_blocks"])
    routing = 4 * tokens * axes["num_experts"] + 2 * axes["num_experts"]
    return {
        "bytes_read": active * (weights + scales) + int(here.any(-1).sum()) * (hidden + 4 * blocks) + routing,
        "bytes_written": 2 * tokens * hidden,
        "flops": int(here.sum()) * 2 * weights,
        "precision": "fp8",
    }
