"""Softmax of each row."""

import torch


def run(logits: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """[rows, width] -> [rows, width]."""
    return torch.softmax(logits.to(dtype or torch.float32), dim=-1).to(dtype or logits.dtype)
