"""Runs kernels of the pages on the GPU and compares them with torch.

`python -m tests.ingest.page_kernels NAME` runs one in a process of its own, which ends itself
and says where it stands if the kernel hangs. A case is a function named after its page; it calls what the
page's code defines.
"""

from tests.ingest.page_kernels import barriers, copies, mainloops, patterns  # noqa: F401 (they enter their cases)
from tests.ingest.page_kernels.frame import CASES, run

__all__ = ["CASES", "run"]
