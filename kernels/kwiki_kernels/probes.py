"""Rows far off the distribution, among scaled ones: what an expectation or a shortcut cannot stand for."""

from __future__ import annotations

import math

import torch

LARGE = 8.0
"""Of large rows, over the others of a probe: with a spread of 4 their exponentials overflow float32."""
SPECIAL = ONE_HOT, CONSTANT, ZERO, ENLARGED = 1, 3, 5, 7
"""Kinds of special rows; even kinds are left as they are, so that half of all rows are."""
KINDS = 8


def row_kinds(rows: int, generator: torch.Generator, *, gentle: bool = False) -> torch.Tensor:
    """[rows]: the kind of each, in random order and all alike often; one row alone is left as it is.

    `gentle` leaves out the constant and the large ones: products of such rows leave the range of float16.
    """
    device = generator.device
    order = torch.randperm(rows, generator=generator, device=device)
    offset = 2 * torch.randint(KINDS // 2, (1,), generator=generator, device=device)
    kinds = (order + offset) % KINDS
    if gentle:
        kinds[(kinds == CONSTANT) | (kinds == ENLARGED)] = 0
    return kinds


def bend_rows(drawn: torch.Tensor, kinds: torch.Tensor, spread: float, generator: torch.Generator) -> None:
    """Turn rows of `drawn` [rows, width], random numbers of standard deviation `spread`, into their kind.

    One-hot rows are as long as the others, so that errors in them weigh as much; constant rows repeat
    their first element.
    """
    hot = (kinds == ONE_HOT).nonzero().squeeze(-1)
    where = torch.randint(drawn.shape[1], hot.shape, generator=generator, device=generator.device)
    drawn[hot] = 0.0
    drawn[hot, where] = spread * math.sqrt(drawn.shape[1])
    drawn[kinds == CONSTANT] = drawn[kinds == CONSTANT][:, :1]
    drawn[kinds == ZERO] = 0.0
    drawn[kinds == ENLARGED] *= LARGE
