"""What PyTorch offers as one call."""

import torch


def run(hidden_states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[num_tokens, hidden_size], [hidden_size] -> [num_tokens, hidden_size], all bfloat16."""
    return torch.nn.functional.rms_norm(hidden_states, weight.shape, weight, eps=1e-6)
