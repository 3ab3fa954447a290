"""Index lists with the lengths and the clustering that were published for the contest's captured ones.

Valid slots come first, ascending, in almost contiguous ranges; a full list spans a quarter more slots
than it names and is in no order. Rows use pages of their own, from page 1 on.
"""

import torch

LENGTHS = (
    (1, 10, 18), (11, 50, 49), (51, 100, 12), (101, 200, 10), (201, 500, 15),
    (501, 1000, 1), (1001, 1500, 4), (1501, 2047, 7), (2048, 2048, 4),
)  # fmt: skip
"""Least and largest length, and how many of 120 published lists lie between."""
FULL_SPAN = 1.2
"""Slots that a full list spans over those that it names; others leave out one slot in thirty."""
PART_SPAN = 1.03


def layout(axes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Only the lists; queries and caches are plain normal numbers."""
    topk, page = axes["topk"], axes["page_size"]
    slots = axes["num_pages"] * page
    indices = torch.full((axes["num_tokens"], topk), -1, dtype=torch.int32)
    odds = torch.tensor([float(count) for _, _, count in LENGTHS])
    first = page
    for row in indices:
        least, largest, _ = LENGTHS[int(torch.multinomial(odds, 1, generator=generator))]
        # Even on a logarithmic scale: the published quartiles lie low in their ranges.
        length = int(least * ((largest + 1) / least) ** float(torch.rand(1, generator=generator)))
        length = min(length, topk, slots)
        full = length == topk
        span = min(slots, int(length * (FULL_SPAN if full else PART_SPAN)))
        named = torch.randperm(span, generator=generator)[:length]
        named = named if full else named.sort().values
        row[:length] = (first + named) % slots
        first += -(-span // page) * page
    return {"sparse_indices": indices}
