"""The chunk form in PyTorch calls: what happens within chunks for all of them side by side, then one step
for the first chunks of all sequences, one for the second, and so on.

Longer sequences come first, so that the chunks of a step lie side by side. Only the lengths must be
known on the host.
"""

import itertools

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
    bounds = list(itertools.pairwise(cu_seqlens.tolist()))
    order = sorted(range(len(bounds)), key=lambda n: bounds[n][0] - bounds[n][1])
    steps = [
        [
            (start, last)
            for start, last in ((bounds[n][0] + offset, bounds[n][1]) for n in order)
            if start < last
        ]
        for offset in range(0, max((last - first for first, last in bounds), default=0), CHUNK)
    ]
    cuts = torch.tensor(list(itertools.chain(*steps)), device=q.device).reshape(-1, 2, 1)
    token = cuts[:, 0] + torch.arange(CHUNK, device=q.device)
    real = token < cuts[:, 1]
    token = token.where(real, len(q))  # a row of nothing, below the last one

    def chunks(x: torch.Tensor) -> torch.Tensor:
        """[T, heads, ...] -> [chunks, HV, CHUNK, ...], zeros where a sequence has ended."""
        x = torch.cat([x, x.new_zeros(1, *x.shape[1:])])[token].transpose(1, 2)
        return x.repeat_interleave(v.shape[1] // x.shape[1], dim=1)

    gates = -A_log.exp() * torch.nn.functional.softplus(a.float() + dt_bias)
    queries, keys, values = (chunks(x.float()) for x in (q, k, v))
    log_decay = chunks(gates).cumsum(-1)
    beta = chunks(torch.sigmoid(b.float()))[..., None]
    decay = log_decay[..., None].exp()
    between = (log_decay[..., :, None] - log_decay[..., None, :]).tril().exp().tril()
    lower = (beta * between * (keys @ keys.mT)).tril(-1)
    solved = torch.linalg.solve_triangular(
        lower + torch.eye(CHUNK, device=q.device),
        torch.cat([beta * values, beta * decay * keys], dim=-1),
        upper=False,
        unitriangular=True,
    )
    fresh, seen = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    inside = between * (queries @ keys.mT)
    reading = decay * queries
    to_end = (log_decay[..., -1:] - log_decay).exp()[..., None] * keys

    carried = state[order]
    outputs = torch.empty_like(fresh)
    first = 0
    for step in steps:
        here, going = slice(first, first + len(step)), carried[: len(step)]
        added = fresh[here] - seen[here] @ going.mT
        outputs[here] = reading[here] @ going.mT + inside[here] @ added
        going.mul_(decay[here, :, -1:]).add_(added.mT @ to_end[here])
        first += len(step)

    output = torch.empty(len(q) + 1, *v.shape[1:], dtype=v.dtype, device=v.device)
    output[token] = (scale * outputs.transpose(1, 2)).to(v.dtype)
    new_state = torch.empty_like(state)
    new_state[order] = carried
    return output[:-1], new_state * (cu_seqlens.diff() > 0)[:, None, None, None]
