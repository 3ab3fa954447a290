"""The step in PyTorch calls, with batched products in float32."""

import torch


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes as in the reference; output bfloat16, new state float32."""
    sharing = v.shape[2] // q.shape[2]
    q, k = (x[:, 0].float().repeat_interleave(sharing, dim=1).unsqueeze(-1) for x in (q, k))
    gate = torch.exp(-A_log.exp() * torch.nn.functional.softplus(a[:, 0].float() + dt_bias))
    beta = torch.sigmoid(b[:, 0].float())
    decayed = gate[..., None, None] * state
    surprise = beta[..., None, None] * (v[:, 0].float().unsqueeze(-1) - decayed @ k)
    after = torch.baddbmm(decayed.flatten(0, 1), surprise.flatten(0, 1), k.mT.flatten(0, 1)).view_as(state)
    output = scale * (after @ q)
    return output.permute(0, 3, 1, 2).to(v.dtype), after
