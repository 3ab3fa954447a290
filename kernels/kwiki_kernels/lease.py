"""Who may use the GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from kwiki_kernels.keeper import POLL_S, Cancelled


@contextlib.contextmanager
def gpu_lease(stop: threading.Event) -> Iterator[None]:
    """The GPU for one contest at a time, across threads and processes of this user.

    Raises:
        Cancelled: `stop` was set while waiting.
    """
    path = Path(tempfile.gettempdir()) / f"kernel-wiki-gpu-{os.getuid()}.lock"
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(POLL_S):
                    raise Cancelled from None
        yield
