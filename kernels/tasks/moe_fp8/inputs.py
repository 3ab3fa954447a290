"""Routing of plain normal logits with a small bias, so that about T of the 8 T choices fall to this rank.

Two changes: the first token gets an expert of this rank, without which a single token would often
leave nothing to compute; and rows whose scores tie in float32 are drawn again, since no kernel could
be blamed for either choice.

All else is as the contest's harness draws it: fp8 values from a normal clamped to [-2, 2], and scales
from a normal, half of them negative. Block scales of a power of two cannot stand for them.
"""

import torch

GROUPS = 8
BIAS_SPREAD = 0.02
"""A larger one would starve experts: near the top, scores differ by little."""
LIFT = 3.0
"""Of a logit, enough to be among the best eight."""
TIE = 1e-6
"""Ten times the rounding of a float32 sigmoid."""


def layout(axes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Who goes where decides how much work there is."""
    tokens, experts, first = axes["seq_len"], axes["num_experts"], axes["local_expert_offset"]
    bias = (BIAS_SPREAD * torch.randn(experts, generator=generator)).bfloat16()
    logits = torch.empty(tokens, experts)
    again = torch.arange(tokens)
    while len(again):
        logits[again] = torch.randn(len(again), experts, generator=generator)
        if again[0] == 0:
            logits[0, first] = logits[0, first].abs() + LIFT
        again = again[_tied(logits[again].double().sigmoid() + bias.double())]
    return {"routing_logits": logits, "routing_bias": bias}


def _tied(scores: torch.Tensor) -> torch.Tensor:
    """Whether two experts of a row, or two groups by their best two experts, are as good as equal: [rows]."""
    groups = scores.unflatten(-1, (GROUPS, -1)).topk(2).values.sum(-1)
    gaps = [values.sort().values.diff().amin(-1) for values in (scores, groups)]
    return torch.minimum(*gaps) < TIE
