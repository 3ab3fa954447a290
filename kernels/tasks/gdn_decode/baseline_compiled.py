"""What PyTorch's compiler makes of the step when products are written as sums: the state is read once."""

import torch


@torch.compile(dynamic=False)
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
    q, k = (x[:, 0].float().repeat_interleave(sharing, dim=1).unsqueeze(2) for x in (q, k))
    gate = torch.exp(-A_log.exp() * torch.nn.functional.softplus(a[:, 0].float() + dt_bias))
    beta = torch.sigmoid(b[:, 0].float())[..., None, None]
    decayed = gate[..., None, None] * state
    surprise = beta * (v[:, 0].float().unsqueeze(-1) - (decayed * k).sum(-1, keepdim=True))
    after = decayed + surprise * k
    output = scale * (after * q).sum(-1)
    return output.unsqueeze(1).to(v.dtype), after
