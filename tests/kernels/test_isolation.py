"""What a candidate's process can no longer reach, shown by a candidate that tries. No GPU."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.isolation import ALL, Level
from kwiki_kernels.job import Defences
from kwiki_kernels.judge import run_job

from tests.kernels.judge_samples import HONEST, make_job

ROOT = Path(__file__).parents[2]
KEEPER = f"/proc/{os.getpid()}/environ"
REFERENCE = str(ROOT / "kernels" / "tasks" / "rmsnorm" / "reference.py")
READS = "raise ValueError(open({path!r}, 'rb').read(9))"


TRY = """
import sys
from pathlib import Path
from kwiki_kernels.isolation import confine_files, deny
try:
    confine_files(Path("/tmp")) if sys.argv[1] == "files" else deny(sys.argv[1])
except OSError:
    sys.exit(1)
"""


@functools.cache
def offered(level: Level) -> bool:
    """Whether this machine's kernel has the level; tried in a child, as there is no way back."""
    return subprocess.run([sys.executable, "-c", TRY, level], check=False).returncode == 0


def needs(level: Level) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not offered(level), reason=f"this kernel does not offer '{level}'")


def attempt(source: str, *levels: Level) -> Evaluation:
    job = make_job(source, stage="build", defences=Defences(audit=False, isolation=levels))
    (verdict,) = run_job(job)
    return verdict


def test_who_asks_for_the_users_name_gets_one_though_the_list_of_users_is_closed() -> None:
    closed = attempt("import getpass\nraise ValueError(getpass.getuser())", "files")
    assert "ValueError: judge" in closed.log


@pytest.mark.parametrize(
    ("level", "source"),
    [
        pytest.param("network", "import socket\nsocket.socket()", id="open a socket"),
        pytest.param("network", "import socket\nsocket.socket(socket.AF_UNIX)", id="open a local socket"),
        pytest.param("syscalls", "import os\nos.setsid()", id="leave the process group"),
        pytest.param(
            "syscalls",
            "import ctypes\nif ctypes.CDLL(None).unshare(0): raise OSError('Permission denied')",
            id="enter another namespace",
        ),
        pytest.param("files", "open('/tmp/kernel-wiki-mark', 'w')", id="write elsewhere"),
        pytest.param("files", READS.format(path=str(Path.home())), id="read the home folder"),
        pytest.param("files", READS.format(path=KEEPER), id="read the keeper's tokens"),
        pytest.param("files", READS.format(path=REFERENCE), id="read a reference"),
        pytest.param("files", "import os\nos.kill(os.getppid(), 0)", id="signal the keeper"),
    ],
)  # fmt: skip
def test_a_level_denies_what_it_is_for_and_nothing_does_without_it(level: Level, source: str) -> None:
    if not offered(level):
        pytest.skip(f"this kernel does not offer '{level}'")
    assert "ermission denied" in attempt(source, level).log or "not permitted" in attempt(source, level).log
    free = attempt(source).log
    assert "denied" not in free
    Path("/tmp/kernel-wiki-mark").unlink(missing_ok=True)


def test_the_record_says_what_stood() -> None:
    closed, open_ = attempt(HONEST, *ALL), attempt(HONEST)
    assert open_.environment.isolation[1:] == ("files: open", "network: open", "syscalls: open")
    for level, note in zip(ALL, closed.environment.isolation[1:], strict=True):
        assert note.startswith(f"{level}: ")
        assert ("open" not in note) == offered(level)
    assert closed.environment.isolation[0] == "limits: core, file size, open files"


@needs("files")
def test_what_denies_holds_for_children_too() -> None:
    source = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-c', 'open(\"/tmp/x\", \"w\")']\n"
        "done = subprocess.run(command, capture_output=True, text=True)\n"
        "raise ValueError(done.stderr[-200:])"
    )
    assert "Permission denied: '/tmp/x'" in attempt(source, "files").log


def test_without_a_word_everything_is_closed_where_nothing_is_measured() -> None:
    job = make_job(HONEST, stage="check", defences=Defences(audit=False))
    (verdict,) = run_job(job)
    assert verdict.status is Status.UNMEASURED
    assert verdict.log == "right on the CPU; nothing was measured"
    assert [offered(level) for level in ALL] == [
        "open" not in note for note in verdict.environment.isolation[1:]
    ]


def test_the_request_with_seed_and_token_is_gone_before_the_candidate_runs() -> None:
    assert "No such file or directory: 'request.json'" in attempt(READS.format(path="request.json")).log
