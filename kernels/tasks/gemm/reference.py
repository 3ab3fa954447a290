"""Matrix product with both operands K-major, in their dtype; in float64 it is the oracle."""

import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[M, K], [N, K] -> [M, N]."""
    return a @ b.T


def work(axes: dict[str, int], _layout: dict[str, object]) -> dict[str, object]:
    """Each matrix moves once, in bfloat16; 2 MNK FLOPs."""
    m, n, k = axes["M"], axes["N"], axes["K"]
    return {
        "bytes_read": 2 * (m + n) * k,
        "bytes_written": 2 * m * n,
        "flops": 2 * m * n * k,
        "precision": "bf16",
    }
