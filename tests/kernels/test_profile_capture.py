from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from kwiki_kernels.errors import ProfileError
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.lease import gpu_lease, unquiet
from kwiki_kernels.profile.capture import capture_counters, capture_trace

from tests.kernels.judge_samples import HONEST, make_job

CANDIDATE = Candidate(id="c", source=HONEST)


def install(folder: Path, name: str, script: str) -> None:
    """A program of that name for a PATH that holds nothing else."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.defpath}")
    return folder


def test_a_missing_profiler_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ProfileError, match="ncu is not on PATH"):
        capture_counters(make_job(), CANDIDATE)


def test_a_profiler_that_fails_is_quoted_in_its_last_line(programs: Path) -> None:
    install(programs, "ncu", "echo first >&2; echo no such device >&2; exit 9")
    with pytest.raises(ProfileError, match=r"^ncu failed: no such device$"):
        capture_counters(make_job(), CANDIDATE)


def test_a_profiler_that_hangs_is_stopped(programs: Path) -> None:
    install(programs, "ncu", "sleep 60")
    with pytest.raises(ProfileError, match=r"within 0\.5 s"):
        capture_counters(make_job(protocol=Protocol(judge_timeout_s=0.5)), CANDIDATE)


def test_the_target_runs_with_the_architecture_and_without_credentials(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    install(programs, "ncu", "env; test -f request.json")
    seen = capture_counters(make_job(), CANDIDATE)
    assert "CUTE_DSL_ARCH=sm_90a" in seen
    assert "secret" not in seen


def test_a_target_counts_gpus_as_nvidia_smi_does(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    install(programs, "ncu", "env")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in capture_counters(make_job(), CANDIDATE)


@pytest.mark.parametrize("use", [gpu_lease, unquiet])
def test_a_profiler_waits_for_whoever_uses_the_gpu(
    use: Callable[[threading.Event], AbstractContextManager[None]],
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    install(programs, "ncu", f"cat {tmp_path}/state")
    (tmp_path / "state").write_text("in use")
    with ThreadPoolExecutor() as pool:
        with use(threading.Event()):
            counting = pool.submit(capture_counters, make_job(), CANDIDATE)
            with pytest.raises(TimeoutError):
                counting.result(timeout=0.3)
            (tmp_path / "state").write_text("free")
        assert counting.result(timeout=10) == "free"


def test_a_trace_is_kept_with_its_perfetto_twin(programs: Path, tmp_path: Path) -> None:
    into = tmp_path / "profile"
    into.mkdir()
    install(
        programs, "run-iket", "mkdir traces; echo '{}' > traces/iket_pid_7.trace.json; : > traces/a.pftrace"
    )
    assert capture_trace(make_job(), CANDIDATE, into) == "{}\n"
    assert {path.name for path in into.iterdir()} == {"iket_pid_7.trace.json.gz", "a.pftrace.gz"}
    assert gzip.decompress((into / "iket_pid_7.trace.json.gz").read_bytes()) == b"{}\n"


def test_only_one_call_is_traced_and_two_are_made_before_counting(programs: Path, tmp_path: Path) -> None:
    last = 'for last; do :; done; echo "last $last"'
    install(programs, "ncu", last)
    install(programs, "run-iket", last)
    assert capture_counters(make_job(), CANDIDATE) == "last 2\n"
    with pytest.raises(ProfileError, match=r"last 0$"):
        capture_trace(make_job(), CANDIDATE, tmp_path)


def test_a_trace_too_large_to_read_asks_for_fewer_ranges(programs: Path, tmp_path: Path) -> None:
    into = tmp_path / "profile"
    into.mkdir()
    install(programs, "run-iket", "mkdir traces; truncate -s 300M traces/iket_pid_7.trace.json")
    with pytest.raises(ProfileError, match=r"has 314 MB, .*: put ranges around tiles"):
        capture_trace(make_job(), CANDIDATE, into)
    assert list(into.iterdir()) == []


def test_a_profiler_that_leaves_no_trace_is_quoted(programs: Path, tmp_path: Path) -> None:
    install(programs, "run-iket", "echo no instrumented kernel")
    with pytest.raises(ProfileError, match="left no trace: no instrumented kernel"):
        capture_trace(make_job(), CANDIDATE, tmp_path)
