"""Routing of plain normal logits with a small bias, so that about T of the 8 T choices fall to this rank.

All else is as the contest's harness draws it: fp8 values from a normal clamped to [-2, 2], and scales
from a normal, half of them negative. Block scales of a power of two cannot stand for them.
"""

import torch

BIAS_SPREAD = 0.02
"""A larger one would starve experts: near the top, scores differ by little."""


def make(
    axes: dict[str, int], _values: torch.Generator, layout: torch.Generator, _spread: float
) -> dict[str, torch.Tensor]:
    """Who goes where decides how much work there is; `_spread` scales what the judge draws."""
    logits = torch.randn(axes["seq_len"], axes["num_experts"], generator=layout)
    bias = BIAS_SPREAD * torch.randn(axes["num_experts"], generator=layout)
    return {"routing_logits": logits, "routing_bias": bias.bfloat16()}
