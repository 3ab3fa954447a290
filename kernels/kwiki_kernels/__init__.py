"""The judge: task contracts, building, checking, timing and verdicts for GPU kernels."""
