"""`kernel-agent` as a user meets it: real processes, the real compiler, no GPU."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from kwiki_agent.runs import RunFolder
from kwiki_ingest.search.retrieve import search
from kwiki_ingest.wiki import Wiki

AGENT = [sys.executable, "-m", "kwiki_agent.cli"]
ONE_WORKLOAD = ["--arch", "sm_100a", "--workloads", "h2048-t1024"]
SMALL = [*ONE_WORKLOAD, "--candidates", "2", "--batch", "2", "--search-only"]


@pytest.fixture
def place(tmp_path: Path, wiki: Wiki) -> list[str]:
    """Options that keep a command inside the test's folder."""
    return ["--runs", str(tmp_path / "runs"), "--wiki", str(wiki.root)]


def agent(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [*AGENT, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
        check=False,
        **options,
    )  # type: ignore[call-overload, no-any-return]


def assert_one_sentence(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("kernel-agent: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in last


def test_help_imports_nothing_heavy() -> None:
    heavy = (
        "torch",
        "cutlass",
        "chromadb",
        "sentence_transformers",
        "langgraph",
        "optuna",
        "matplotlib",
        "pydantic",
    )
    code = (
        "import sys; from kwiki_agent.cli import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_listing_runs_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = ("torch", "cutlass", "chromadb", "sentence_transformers", "langgraph", "optuna", "matplotlib")
    code = (
        f"import sys; from kwiki_agent.cli import main\nmain(['runs', '--runs', {str(tmp_path)!r}])\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-task"], ("no task 'no-such-task'", "rmsnorm")),
        (["rmsnorm", "--arch", "sm_91"], ("unknown arch 'sm_91'", "sm_90a")),
        (["rmsnorm", "--workloads", "h1-t1"], ("no workload 'h1-t1'",)),
        (["rmsnorm", "--fix", "threads=4"], ("unknown knob 'threads'", "threads_per_row")),
        (["rmsnorm", "--fix", "vector_bits=7"], ("knob 'vector_bits' cannot be '7'", "128")),
        (["rmsnorm", "--id", "../outside"], ("'../outside' cannot name a run",)),
        (["rmsnorm", "--id", "two words"], ("'two words' cannot name a run",)),
        (["rmsnorm", "--imports", "torch"], ("imports collections, which the contract does not allow",)),
    ],
    ids=["task", "arch", "workload", "knob", "knob value", "run id", "two words", "imports"],
)
def test_a_wrong_argument_is_one_sentence(
    place: list[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    assert_one_sentence(agent("run", *arguments, *place), 2, *words)


def test_a_missing_wiki_is_one_sentence(tmp_path: Path) -> None:
    done = agent("run", "rmsnorm", "--wiki", str(tmp_path / "nowhere"), "--runs", str(tmp_path / "runs"))
    assert_one_sentence(done, 1, "nowhere")


def test_no_runs_and_unknown_runs_are_said(tmp_path: Path) -> None:
    assert agent("runs", "--runs", str(tmp_path)).stdout.startswith("no runs in")
    assert_one_sentence(agent("report", "x", "--runs", str(tmp_path)), 2, "no run 'x'")


def test_a_run_without_a_gpu_goes_to_its_report_and_lesson(place: list[str], wiki: Wiki) -> None:
    options = [*ONE_WORKLOAD, "--candidates", "4", "--batch", "4", "--search-only", "--id", "demo"]
    done = agent("run", "rmsnorm", *options, *place)
    assert done.returncode == 0, done.stderr
    assert "Nothing was measured" in done.stdout
    report = Path(done.stdout.split("report: ")[1].splitlines()[0]).read_text(encoding="utf-8")
    assert "it is no measurement" in report
    page = done.stdout.split("lesson added: ")[1].splitlines()[0]
    assert page in {hit.page_id for hit in search(wiki, "rmsnorm registers per thread", types=["lesson"])}
    shown = agent("report", "demo", *place[:2])
    assert shown.stdout == report
    assert json.loads(agent("report", "demo", "--json", *place[:2]).stdout) == {
        "run": "demo",
        "report": report,
    }
    listed = json.loads(agent("runs", "--json", *place[:2]).stdout)
    assert [(run["run"], run["state"]) for run in listed] == [("demo", "finished")]


def test_a_killed_run_resumes_and_builds_nothing_twice(place: list[str], tmp_path: Path) -> None:
    options = [*ONE_WORKLOAD, "--candidates", "6", "--batch", "3", "--search-only", "--id", "killed"]
    results = tmp_path / "runs" / "killed" / "spool" / "results"
    with subprocess.Popen(
        [*AGENT, "run", "rmsnorm", *options, *place], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:  # fmt: skip
        _wait_for(lambda: any(results.glob("*/c*.json")))
        os.killpg(process.pid, signal.SIGKILL)
    before = {path: path.stat().st_mtime_ns for path in results.glob("*/c*.json")}
    done = agent("resume", "killed", *place[:2])
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(RunFolder(tmp_path / "runs" / "killed").candidates()) == 6


def test_ctrl_c_says_how_to_go_on(place: list[str], tmp_path: Path) -> None:
    with subprocess.Popen(
        [*AGENT, "run", "rmsnorm", *SMALL, "--id", "stopped", *place], stderr=subprocess.PIPE, text=True
    ) as process:
        _wait_for(lambda: any((tmp_path / "runs").glob("stopped/candidates/c*")))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "kernel-agent resume" in stderr.strip().splitlines()[-1]
    assert "Traceback" not in stderr
    assert agent("resume", "stopped", *place[:2]).returncode == 0


def test_a_run_waits_for_its_spool_and_reads_the_worker_back(place: list[str], tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    done = agent("run", "rmsnorm", *SMALL, "--id", "away", "--spool", str(spool), *place)
    assert done.returncode == 3, done.stderr
    assert f"python -m kwiki_kernels.worker {spool}" in done.stdout
    assert agent("resume", "away", *place[:2]).returncode == 3
    worker = [sys.executable, "-m", "kwiki_kernels.worker", str(spool), "--once"]
    subprocess.run(worker, check=True, capture_output=True, timeout=200)
    result = next((spool / "results").glob("*/c0001.json"))
    honest = result.read_text(encoding="utf-8")
    result.write_text(honest.replace("UNMEASURED", "PASSED"), encoding="utf-8")
    assert_one_sentence(agent("resume", "away", *place[:2]), 1, "was changed after the job was done")
    result.write_text(honest, encoding="utf-8")
    assert agent("resume", "away", *place[:2]).returncode == 0


def test_kernels_are_handed_in_and_taken_away_on_the_command_line(place: list[str], tmp_path: Path) -> None:
    runs = place[:2]
    begun = agent("run", "rmsnorm", *ONE_WORKLOAD, "--policy", "external", "--id", "by-hand", *place)
    assert begun.returncode == 3, begun.stderr
    assert "kernel-agent brief by-hand" in begun.stdout
    brief = json.loads(agent("brief", "by-hand", "--json", *runs).stdout)
    kernel = tmp_path / "mine.py"
    kernel.write_text(brief["seed"].replace("UNROLL = 4", "UNROLL = 2"), encoding="utf-8")
    handed = agent("submit", "by-hand", *runs, str(kernel), "--intent", "unroll less")
    assert handed.returncode == 3, handed.stderr
    assert "c0001" in handed.stdout
    assert agent("submit", "by-hand", "--done", *runs).returncode == 0
    exported = agent("export", "by-hand", "--out", str(tmp_path / "out"), *runs)
    assert "UNROLL = 2" in (tmp_path / "out" / "rmsnorm_bf16.py").read_text(encoding="utf-8")
    assert exported.stdout.splitlines()[0] == str(tmp_path / "out" / "rmsnorm_bf16.py")
    forked = agent("fork", "by-hand", "--at", "c0001", *runs)
    assert "kernel-agent resume by-hand-from-c0001" in forked.stdout


def test_a_second_process_on_one_run_is_turned_away(place: list[str], tmp_path: Path) -> None:
    agent("run", "rmsnorm", *SMALL, "--id", "busy", *place, "--fix", "threads_per_row=256")
    with FileLock(tmp_path / "runs" / "busy" / ".lock"):
        assert_one_sentence(
            agent("resume", "busy", *place[:2]), 2, "another process is working on run 'busy'"
        )


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_after(place: list[str], tmp_path: Path) -> None:
    def no_file_above_64_kib() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))

    done = agent("run", "rmsnorm", *SMALL, "--id", "full", *place, preexec_fn=no_file_above_64_kib)
    assert_one_sentence(done, 1)
    assert (tmp_path / "runs" / "full" / "run.json").exists()
    assert agent("resume", "full", *place[:2]).returncode == 0


def _wait_for(happened: object, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_output_that_nobody_can_take_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*AGENT, "tasks"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"kernel-agent: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["tasks", "runs"])
def test_a_reader_that_has_seen_enough_hears_nothing(
    command: str, unbuffered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*AGENT, command, "--json"], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
