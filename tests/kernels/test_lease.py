"""One contest at a time on a GPU, and each GPU of a machine by itself."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from kwiki_kernels.device import gpu_uuid
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


def test_a_gpu_is_the_same_by_its_index_and_by_its_uuid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\ncase "$*" in *=3|*=GPU-a) echo GPU-a;; *) echo GPU-b;; esac\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    gpu_uuid.cache_clear()
    stop = threading.Event()
    stop.set()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with gpu_lease(threading.Event()):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
        with pytest.raises(Cancelled), gpu_lease(stop):
            pass
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        with gpu_lease(stop):
            pass
    gpu_uuid.cache_clear()


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
