"""The gated delta rule over packed sequences, in chunks.

Within a chunk, with S the state that enters it, G the log of the gates' cumulative product and all
ratios exp(G_t - G_s) at most one: the rows u of what the tokens add to the state solve
(I + L) U = beta (V - exp(G) K S'), where L[t, s] = beta_t exp(G_t - G_s) k_t.k_s below the diagonal.
"""

import itertools

import torch

CHUNK = 64


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor | None,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `exact` in float32, rounded to the definition's dtypes."""
    output, new_state = exact(q, k, v, state, A_log, a, dt_bias, b, cu_seqlens, scale, dtype=torch.float32)
    return output.to(v.dtype), new_state


def exact(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor | None,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    cu_seqlens: torch.Tensor,
    scale: float | None,
    *,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [T, HV, V] and new state [N, HV, V, K]; an empty sequence leaves a state of zeros.

    q, k [T, H, K]; v [T, HV, V]; state [N, HV, V, K], None for zeros; A_log, dt_bias [HV];
    a, b [T, HV]; cu_seqlens [N + 1], where sequences begin, then T;
    a scale of None or 0 means K ** -0.5.
    """
    sharing = v.shape[1] // q.shape[1]
    # Heads first: [HV, T, K], [HV, T, V], [HV, T].
    queries, keys = (x.to(dtype).repeat_interleave(sharing, dim=1).transpose(0, 1) for x in (q, k))
    values = v.to(dtype).transpose(0, 1)
    log_gates = (-A_log.to(dtype).exp() * _softplus(a.to(dtype) + dt_bias.to(dtype))).T
    betas = torch.sigmoid(b.to(dtype)).T
    bounds = cu_seqlens.tolist()
    output = torch.zeros_like(values)
    heads, _, width = values.shape
    shape = (len(bounds) - 1, heads, width, queries.shape[-1])
    new_state = torch.zeros(shape, dtype=dtype, device=v.device)
    for n, (first, last) in enumerate(itertools.pairwise(bounds)):
        carried = torch.zeros_like(new_state[n]) if state is None else state[n].to(dtype)
        for start in range(first, last, CHUNK):
            tokens = slice(start, min(start + CHUNK, last))
            output[:, tokens], carried = _chunk(
                queries[:, tokens],
                keys[:, tokens],
                values[:, tokens],
                log_gates[:, tokens].cumsum(-1),
                betas[:, tokens, None],
                carried,
            )
        if first < last:
            new_state[n] = carried
    return (scale or queries.shape[-1] ** -0.5) * output.transpose(0, 1), new_state


def _chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs [HV, C, V] and the state [HV, V, K] that leaves the chunk."""
    decay = log_decay[..., None].exp()
    between = (log_decay[:, :, None] - log_decay[:, None, :]).tril().exp().tril()
    lower = (beta * between * (k @ k.mT)).tril(-1)
    identity = torch.eye(k.shape[1], dtype=k.dtype, device=k.device)
    wanted = beta * (v - decay * (k @ state.mT))
    added = torch.linalg.solve_triangular(identity + lower, wanted, upper=False, unitriangular=True)
    outputs = decay * (q @ state.mT) + (between * (q @ k.mT)) @ added
    to_end = (log_decay[:, -1:] - log_decay).exp()[..., None]
    return outputs, decay[:, -1:] * state + added.mT @ (to_end * k)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    """Exact for large arguments too, where torch's turns linear at 20."""
    return torch.logaddexp(x, torch.zeros_like(x))


def work(axes: dict[str, int], _layout: dict[str, object]) -> dict[str, object]:
    """Tokens move once, states in and out; FLOPs of the chunk form with 64 tokens a chunk."""
    tokens, heads, size = axes["total_seq_len"], axes["num_v_heads"], axes["head_size"]
    token = 2 * size * (axes["num_q_heads"] + axes["num_k_heads"] + heads) + 2 * 2 * heads
    states = 4 * axes["num_seqs"] * heads * size**2
    return {
        "bytes_read": tokens * token + states + 8 * axes["len_cu_seqlens"] + 2 * 4 * heads,
        "bytes_written": 2 * tokens * heads * size + states,
        "flops": tokens * heads * (6 * size**2 + 8 * CHUNK * size),
        "precision": "bf16",
    }
