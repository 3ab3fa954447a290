"""Ragged groups, as a router leaves them: a few large, many small, some empty."""

import torch

SKEW = 1.0
"""Standard deviation of the logarithm of a group's expected share."""


def layout(axes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Rows choose groups independently, with log-normal odds."""
    odds = (SKEW * torch.randn(axes["groups"], generator=generator)).exp()
    chosen = torch.multinomial(odds, axes["total_rows"], replacement=True, generator=generator)
    sizes = torch.bincount(chosen, minlength=axes["groups"])
    return {"group_ends": sizes.cumsum(0).to(torch.int32)}
