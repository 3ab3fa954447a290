"""One step of the gated delta rule."""

import torch


def run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor | None,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `exact` in float32, rounded to the definition's dtypes."""
    output, new_state = exact(q, k, v, state, A_log, a, dt_bias, b, scale, dtype=torch.float32)
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
    scale: float | None,
    *,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [B, 1, HV, V] and new state [B, HV, V, K].

    q, k [B, 1, H, K]; v [B, 1, HV, V]; state [B, HV, V, K], None for zeros; A_log, dt_bias [HV];
    a, b [B, 1, HV]; a scale of None or 0 means K ** -0.5.
    """
    sharing = v.shape[2] // q.shape[2]
    q, k = (x[:, 0].to(dtype).repeat_interleave(sharing, dim=1) for x in (q, k))
    gate = torch.exp(-A_log.to(dtype).exp() * _softplus(a[:, 0].to(dtype) + dt_bias.to(dtype)))
    beta = torch.sigmoid(b[:, 0].to(dtype))
    batch, _, heads, width = v.shape
    before = torch.zeros(batch, heads, width, q.shape[-1], dtype=dtype, device=v.device)
    if state is not None:
        before = state.to(dtype)
    decayed = gate[..., None, None] * before
    surprise = beta[..., None] * (v[:, 0].to(dtype) - (decayed * k[:, :, None]).sum(-1))
    after = decayed + surprise[..., None] * k[:, :, None]
    output = (scale or q.shape[-1] ** -0.5) * (after * q[:, :, None]).sum(-1, keepdim=True)
    return output.permute(0, 3, 1, 2), after


def _softplus(x: torch.Tensor) -> torch.Tensor:
    """Exact for large arguments too, where torch's turns linear at 20."""
    return torch.logaddexp(x, torch.zeros_like(x))


def work(axes: dict[str, int], _layout: dict[str, object]) -> dict[str, object]:
    """The state is read and written once; three products with it."""
    batch, heads = axes["batch_size"], axes["num_v_heads"]
    token = 2 * axes["head_size"] * (axes["num_q_heads"] + axes["num_k_heads"] + heads) + 2 * 2 * heads
    state = 4 * heads * axes["head_size"] ** 2
    return {
        "bytes_read": batch * (token + state) + 2 * 4 * heads,
        "bytes_written": batch * (2 * axes["head_size"] * heads + state),
        "flops": batch * heads * 6 * axes["head_size"] ** 2,
        "precision": "tf32",
    }
