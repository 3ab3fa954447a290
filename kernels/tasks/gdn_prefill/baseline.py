"""The chunk form in PyTorch calls: all chunks side by side, then one step per chunk of the longest sequence.

Sequences are padded to whole chunks, which needs their lengths on the host.
"""

import torch

CHUNK = 64


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes as in the reference; output bfloat16, new state float32."""
    lengths = cu_seqlens.diff()
    steps = -(-int(lengths.max()) // CHUNK)
    padded = steps * CHUNK
    position = torch.arange(padded, device=q.device)
    real = position < lengths[:, None]
    token = (cu_seqlens[:-1, None] + position).clamp_max(len(q) - 1)

    def chunks(x: torch.Tensor) -> torch.Tensor:
        """[T, heads, ...] -> [N, HV, steps, CHUNK, ...], zeros where a sequence has ended."""
        x = (x[token] * real.reshape(*real.shape, *[1] * (x.dim() - 1))).transpose(1, 2)
        x = x.repeat_interleave(v.shape[1] // x.shape[1], dim=1)
        return x.unflatten(2, (steps, CHUNK))

    gates = -A_log.exp() * torch.nn.functional.softplus(a.float() + dt_bias)
    queries, keys, values = (chunks(x.float()) for x in (q, k, v))
    log_decay = chunks(gates).cumsum(-1)
    beta = chunks(torch.sigmoid(b.float()))[..., None]
    decay = log_decay[..., None].exp()
    between = (log_decay[..., :, None] - log_decay[..., None, :]).tril().exp().tril()
    lower = (beta * between * (keys @ keys.mT)).tril(-1)
    inverse = torch.linalg.solve_triangular(
        lower + torch.eye(CHUNK, device=q.device),
        torch.cat([beta * values, beta * decay * keys], dim=-1),
        upper=False,
        unitriangular=True,
    )
    fresh, seen = inverse.split([v.shape[-1], k.shape[-1]], dim=-1)
    inside = between * (queries @ keys.mT)
    to_end = (log_decay[..., -1:] - log_decay).exp()[..., None] * keys

    outputs = torch.empty_like(fresh)
    for step in range(steps):
        added = fresh[:, :, step] - seen[:, :, step] @ state.mT
        outputs[:, :, step] = (decay * queries)[:, :, step] @ state.mT + inside[:, :, step] @ added
        state = decay[:, :, step, -1:] * state + added.mT @ to_end[:, :, step]
    flat = outputs.flatten(2, 3).transpose(1, 2)[real]
    return (scale * flat).to(v.dtype), state * (lengths > 0)[:, None, None, None]
