"""Faults that the pages on pitfalls describe, provoked on the GPU.

A fault is a kernel with one mistake in it and what comes of it: it hangs, it fails with a message, or its
numbers are wrong. The same kernel without the mistake computes the right numbers. Each runs in a process of
its own, which is ended at its limit.
"""

from tests.ingest.page_faults import barriers, edits, launches, numbers  # noqa: F401 (they enter their faults)
from tests.ingest.page_faults.frame import FAULTS
from tests.ingest.page_faults.outcome import Outcome, honest_runs, observe, server

__all__ = ["FAULTS", "Outcome", "honest_runs", "observe", "server"]
