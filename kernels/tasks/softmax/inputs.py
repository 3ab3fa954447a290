"""Plain logits, and for the probe off the distribution some whose exponentials overflow float32."""

import torch

PROBE_SPREAD = 32.0
"""The largest of a thousand such numbers is about 100; exp(89) is infinite in float32."""


def values(axes: dict[str, int], generator: torch.Generator, spread: float) -> dict[str, torch.Tensor]:
    """Normal numbers of standard deviation 1, or `PROBE_SPREAD` with every fourth row constant."""
    shape = (axes["rows"], axes["width"])
    logits = torch.empty(shape, dtype=torch.bfloat16, device=generator.device)
    logits.normal_(0.0, 1.0 if spread == 1.0 else PROBE_SPREAD, generator=generator)
    if spread != 1.0:
        logits[3::4] = logits[3::4, :1].clone()
    return {"logits": logits}
