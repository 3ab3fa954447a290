"""q and k come normalised to length one; sequences are split unevenly, each with at least one token."""

import torch

GATE_SPREAD = 0.1
"""Standard deviation of A_log and dt_bias; the rest are plain normal numbers."""
SKEW = 1.5
"""Standard deviation of the logarithm of a sequence's share: the longest is several times the mean."""


def layout(axes: dict[str, int], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Sequences begin in `cu_seqlens`, from 0 to the number of tokens; none is empty if tokens suffice."""
    tokens, sequences = axes["total_seq_len"], axes["num_seqs"]
    least = min(1, tokens // max(sequences, 1))
    shares = (SKEW * torch.randn(sequences, generator=generator, dtype=torch.float64)).exp()
    ends = (shares.cumsum(0) / shares.sum() * (tokens - least * sequences)).round().long()
    ends += least * torch.arange(1, sequences + 1)
    return {"cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.int64), ends])}


def values(axes: dict[str, int], generator: torch.Generator, _spread: float) -> dict[str, torch.Tensor]:
    """`_spread` scales v, the state and the gates' inputs, which the judge draws; unit vectors stay so."""
    tokens, width, heads = axes["total_seq_len"], axes["head_size"], axes["num_v_heads"]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device=generator.device)

    q, k = (
        torch.nn.functional.normalize(normal(tokens, count, width), dim=-1).bfloat16()
        for count in (axes["num_q_heads"], axes["num_k_heads"])
    )
    return {
        "q": q,
        "k": k,
        "A_log": GATE_SPREAD * normal(heads),
        "dt_bias": GATE_SPREAD * normal(heads),
    }
