"""q and k come normalised to length one; gates are those of a freshly trained layer."""

import torch

GATE_SPREAD = 0.1
"""Standard deviation of A_log and dt_bias; the rest are plain normal numbers."""


def values(axes: dict[str, int], generator: torch.Generator, _spread: float) -> dict[str, torch.Tensor]:
    """`_spread` scales v, the state and the gates' inputs, which the judge draws; unit vectors stay so."""
    batch, width, heads = axes["batch_size"], axes["head_size"], axes["num_v_heads"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=generator.device)

    q, k = (
        torch.nn.functional.normalize(normal(batch, 1, count, width), dim=-1).bfloat16()
        for count in (axes["num_q_heads"], axes["num_k_heads"])
    )
    return {"q": q, "k": k, "A_log": GATE_SPREAD * normal(heads), "dt_bias": GATE_SPREAD * normal(heads)}
