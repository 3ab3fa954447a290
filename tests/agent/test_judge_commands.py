from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from kwiki_agent.cli import main
from kwiki_kernels.device import local_gpu
from kwiki_kernels.profile import ncu
from kwiki_kernels.spool import write_job

from tests.kernels.judge_samples import HONEST, make_job, task_files
from tests.kernels.test_profile_iket import PRODUCER_CONSUMER, trace
from tests.kernels.test_profile_ncu import raw_page

RMSNORM = Path(__file__).parents[2] / "kernels" / "tasks" / "rmsnorm"
ONE_SHAPE = ["rmsnorm", str(RMSNORM / "kernel.py"), "--workloads", "h7168-t1024"]
# The other architecture than the one that may be here: nothing is measured, on any machine.
GPU = local_gpu()
ELSEWHERE = "sm_90a" if GPU and GPU.arch != "sm_90a" else "sm_100a"
COMPILED = [*ONE_SHAPE, "--arch", ELSEWHERE]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    folder = tmp_path / "task"
    folder.mkdir()
    for name, text in task_files().items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "candidate.py"
    path.write_text(HONEST, encoding="utf-8")
    return path


def failure(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Exit code and the one sentence on stderr; progress lines are not part of it."""
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    lines = [line for line in output.err.splitlines() if line.startswith("kernel-agent: ")]
    assert len(lines) == 1, output
    return code, lines[0]


def test_compile_reports_registers_and_units_and_says_that_nothing_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compile", *COMPILED]) == 0
    said = capsys.readouterr().out
    assert said.count("nothing was measured") == 1
    assert "registers" in said
    assert "global loads: 8 of 128 bits" in said


def test_judge_without_the_asked_gpu_gives_the_static_report_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["judge", *COMPILED]) == 0
    said = capsys.readouterr().out
    assert "UNMEASURED" in said
    assert "nothing was measured" in said
    assert "occupancy" in said


def test_judge_as_json_holds_the_baseline_the_kernel_and_its_rival(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["judge", *COMPILED, "--against", str(RMSNORM / "kernel.py"), "--json"]) == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert [verdict["candidate_id"] for verdict in verdicts] == ["baseline", "kernel", "against"]
    assert all(verdict["status"] == "UNMEASURED" for verdict in verdicts)


def test_a_knob_changes_what_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *COMPILED, "--knob", "vector_bits=64", "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["static_reports"]
    assert set(report["global_load_bits"]) == {"64"}


def test_a_kernel_that_does_not_build_fails_with_its_line(
    task: Path, kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "import cutlass\n\ndef build(axes, knobs):\n    raise ValueError('no such tile')\n"
    kernel.write_text(source, encoding="utf-8")
    assert main(["compile", str(task), str(kernel), "--arch", ELSEWHERE]) == 1
    said = capsys.readouterr().out
    assert "COMPILE_ERROR" in said
    assert "no such tile" in said
    assert "kernel.py:4" in said


def test_profile_without_a_gpu_diagnoses_the_compiled_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cramped = ["--knob", "min_ctas_per_sm=8", "--out", str(tmp_path / "profile"), "--json"]
    assert main(["profile", *COMPILED, *cramped]) == 0
    diagnosis = json.loads(capsys.readouterr().out)
    assert diagnosis["bound"] == "unknown"
    assert diagnosis["symptoms"][0] == "register-spills"
    assert diagnosis["roofline_share"] is None


def test_profile_reads_captures_of_another_machine_and_draws_the_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counters, events, out = tmp_path / "ncu.csv", tmp_path / "trace.json.gz", tmp_path / "profile"
    counters.write_text(raw_page({"kernel": "k", ncu.DRAM_SHARE: "91", ncu.SM_SHARE: "20"}))
    events.write_bytes(gzip.compress(trace(*PRODUCER_CONSUMER).encode()))
    captures = ["--ncu-csv", str(counters), "--iket-json", str(events), "--out", str(out)]
    assert main(["profile", *COMPILED, *captures]) == 0
    said = capsys.readouterr().out
    assert "memory-bound" in said
    assert "mma" in said
    assert "next edit: " in said
    assert (out / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "timeline.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_tasks_lists_every_task_and_one_task_with_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    assert "rmsnorm" in capsys.readouterr().out
    assert main(["tasks", "rmsnorm", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    one = next(w for w in listed["workloads"] if w["uuid"] == "h7168-t1024")
    assert one["bytes_read"] == 1024 * 7168 * 2 + 7168 * 2


def test_tasks_as_json_counts_in_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    gemm = next(task for task in json.loads(capsys.readouterr().out) if task["task"] == "gemm_bf16")
    assert gemm == {"task": "gemm_bf16", "op": "gemm", "workloads": 16, "seeds": ["sm100", "sm90"]}


def test_what_has_no_result_leaves_nothing_for_a_machine_to_read(
    task: Path, kernel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.write_text("import cutlass\n\ndef build(axes, knobs):\n    raise ValueError('no such tile')\n")
    assert main(["profile", str(task), str(kernel), "--arch", ELSEWHERE, "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no such tile" in said.err


def test_worker_processes_a_spool(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    write_job(spool, make_job(HONEST, stage="build"))
    assert main(["worker", str(spool), "--once"]) == 0
    assert list((spool / "results").rglob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "{kernel}"], "no task 'nowhere'"),
        (["{task}", "missing.py"], "no kernel file 'missing.py'"),
        (["{task}", "{kernel}", "--arch", "sm_75"], "unknown arch 'sm_75'"),
        (["{task}", "{kernel}", "--workloads", "huge"], "no workload 'huge'"),
        (["{task}", "{kernel}", "--knob", "colour=red"], "unknown knob 'colour'"),
        (["{task}", "{kernel}", "--knob", "width_bits=7"], "cannot be '7'"),
    ],
)
@pytest.mark.parametrize("command", ["judge", "compile", "profile"])
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    command: str,
    arguments: list[str],
    sentence: str,
    task: Path,
    kernel: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    filled = [argument.format(task=task, kernel=kernel) for argument in arguments]
    code, said = failure(capsys, command, *filled)
    assert code == 2
    assert sentence in said


def test_a_capture_that_cannot_be_read_is_one_sentence_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "ncu.csv"
    empty.write_text("")
    code, said = failure(capsys, "profile", *COMPILED, "--ncu-csv", empty, "--out", tmp_path / "profile")
    assert (code, "ncu counted nothing" in said) == (1, True)
    for option, content in [
        ("--ncu-csv", None),
        ("--iket-json", b"\xff\xfe\x00"),
        ("--iket-json", b"\x1f\x8b\x08"),
    ]:
        capture = tmp_path / f"capture{option}"
        if content is not None:
            capture.write_bytes(content)
        code, said = failure(capsys, "profile", *COMPILED, option, capture, "--out", tmp_path / "profile")
        assert (code, f"the capture {capture}" in said) == (1, True)
