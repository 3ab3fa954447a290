"""Who may use the GPU, across threads and processes of this user; each GPU of a machine by itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from kwiki_kernels.device import gpu_uuid, visible_gpu
from kwiki_kernels.keeper import Cancelled

POLL_S = 0.005


def gpu_lease(stop: threading.Event) -> AbstractContextManager[None]:
    """The GPU for one contest at a time.

    Raises, on entering:
        Cancelled: `stop` was set while waiting.
    """
    return _locked("gpu", stop)


def quiet(stop: threading.Event) -> AbstractContextManager[None]:
    """Nothing happens on the GPU that would show in a timing: held for all rounds on a workload.

    Raises, as `gpu_lease`.
    """
    return _locked("quiet", stop)


def unquiet(stop: threading.Event) -> AbstractContextManager[None]:
    """Contexts are made and destroyed, by any number at a time, between two workloads of another contest.

    Raises, as `gpu_lease`.
    """
    return _locked("quiet", stop, fcntl.LOCK_SH)


@contextlib.contextmanager
def _locked(what: str, stop: threading.Event, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    visible = visible_gpu()
    gpu = (gpu_uuid(visible) or visible).replace("/", "-")
    path = Path(tempfile.gettempdir()) / f"kernel-wiki-{what}-{os.getuid()}-{gpu}.lock"
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop.wait(POLL_S):
                    raise Cancelled from None
        yield
