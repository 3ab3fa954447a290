"""One contest at a time on a GPU, and each GPU of a machine by itself."""

from __future__ import annotations

import threading

import pytest
from kwiki_kernels.keeper import Cancelled
from kwiki_kernels.lease import gpu_lease, quiet, unquiet


def test_a_gpu_that_is_in_use_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    stop = threading.Event()
    stop.set()
    with gpu_lease(threading.Event()), pytest.raises(Cancelled), gpu_lease(stop):
        pass


def test_another_gpu_is_free_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    stop = threading.Event()
    stop.set()
    with gpu_lease(threading.Event()):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-8/1/0")
        with gpu_lease(stop):
            pass


def test_contexts_come_and_go_together_but_not_while_something_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    stop = threading.Event()
    stop.set()
    with unquiet(threading.Event()):
        with unquiet(stop):
            pass
        with pytest.raises(Cancelled), quiet(stop):
            pass
    with quiet(threading.Event()), pytest.raises(Cancelled), unquiet(stop):
        pass
