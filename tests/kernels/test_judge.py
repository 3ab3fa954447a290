"""Whatever a candidate does to its process, the judge answers with a verdict. Real processes, no GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kwiki_kernels.course import Course
from kwiki_kernels.device import environment, local_gpu
from kwiki_kernels.errors import ArchError, MachineError, TaskError
from kwiki_kernels.evaluation import Evaluation, Status, WorkloadResult
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.keeper import Cancelled
from kwiki_kernels.messages import Built, Ready
from kwiki_kernels.task import parse_task
from kwiki_kernels.verdict import Bench, judge

from tests.kernels.judge_samples import HONEST, make_job, task_files

CUTE = """
import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor

STATIC_AXES = ("width",)

@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + {expression}

@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=[1, 1, 1], block=[64, 1, 1])

class Launch:
    def __init__(self, compiled):
        self.compiled = (compiled,)
    def __call__(self, x, eps, y):
        raise NotImplementedError

def build(axes, knobs):
    x, y = (make_fake_compact_tensor(cutlass.Float32, (axes["width"],)) for _ in range(2))
    return Launch(cute.compile(launch, x, y))
"""
KEEPER = """
import sys
from pathlib import Path
from kwiki_kernels.job import Job
from kwiki_kernels.judge import run_job

run_job(Job.model_validate_json(Path(sys.argv[1]).read_text()))
"""
LIMITS = Protocol(build_timeout_s=2, judge_timeout_s=2)


def verdict(source: str, **fields: object) -> Evaluation:
    """The judge's word on one candidate, compiled only."""
    (evaluation,) = run_job(make_job(source, stage="build", **fields))
    return evaluation


def test_without_measuring_a_kernel_is_compiled_once_for_each_static_shape_and_reported() -> None:
    job = make_job(
        CUTE.format(expression="x[thread]"), stage="build", workload_uuids=("small", "wide", "tall")
    )
    shapes = {"small": (4, 64), "tall": (400, 64), "wide": (2, 4096)}
    (evaluation,) = run_job(job.model_copy(update={"task_files": task_files(shapes=shapes)}))
    assert evaluation.status is Status.UNMEASURED
    assert evaluation.log == "compiled only, as the job asks: nothing was measured"
    assert [report.static_axes for report in evaluation.static_reports] == [{"width": 64}, {"width": 4096}]
    assert all(report.threads_per_cta == 64 for report in evaluation.static_reports)
    assert [result.uuid for result in evaluation.results] == ["small", "wide", "tall"]
    assert {result.status for result in evaluation.results} == {Status.UNMEASURED}
    assert evaluation.results[0].bytes_moved == 2 * 2 * 4 * 64
    assert evaluation.environment.versions["python"]


def test_a_job_to_be_measured_says_why_it_was_not() -> None:
    if local_gpu():
        pytest.skip("there is a GPU here")
    evaluations = run_job(make_job(HONEST, baselines=("baseline",)))
    assert [e.candidate_id for e in evaluations] == ["baseline", "c0"]
    for evaluation in evaluations:
        assert evaluation.status is Status.UNMEASURED
        assert evaluation.log == "no GPU here: compiled for sm_90a, nothing was measured"


def test_a_compile_error_carries_the_dsls_own_words() -> None:
    evaluation = verdict(CUTE.format(expression="nothing_of_that_name"))
    assert evaluation.status is Status.COMPILE_ERROR
    first = evaluation.log.splitlines()[0]
    assert first == "workload small: NameError in `launch`: name 'nothing_of_that_name' is not defined"
    assert "kernel.py:11" in evaluation.log
    assert "\x1b" not in evaluation.log


@pytest.mark.parametrize(
    ("source", "log"),
    [
        ("def build(:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'\n  at kernel.py:1"),
        ("x = 1", "the module defines neither build(axes, knobs) nor run(*inputs, *outputs)"),
        ("def run(): ...", "run takes 0 parameters"),
        ("import sys; sys.exit(3)", "the kernel module called exit(3)"),
        ("STATIC_AXES = ('depth',)\ndef build(axes, knobs): ...", "STATIC_AXES names 'depth'"),
        ("def build(axes, knobs): ...", "TypeError: build returned NoneType, not a callable"),
    ],
)
def test_a_module_that_does_not_build_is_a_compile_error(source: str, log: str) -> None:
    evaluation = verdict(source)
    assert evaluation.status is Status.COMPILE_ERROR
    assert log in evaluation.log


def test_a_build_that_fails_for_one_shape_leaves_the_others_standing() -> None:
    source = "def build(axes, knobs):\n    assert axes['width'] < 100, 'too wide'\n    return print"
    evaluation = verdict(source)
    assert evaluation.status is Status.COMPILE_ERROR
    assert [r.status for r in evaluation.results] == [Status.UNMEASURED, Status.COMPILE_ERROR]
    assert evaluation.log.startswith("workload wide: AssertionError: too wide")


def test_a_build_that_hangs_is_stopped_and_named() -> None:
    source = "import time\ndef build(axes, knobs):\n    time.sleep(600)"
    began = time.monotonic()
    evaluation = verdict(source, protocol=LIMITS)
    assert time.monotonic() - began < 10
    assert evaluation.status is Status.TIMEOUT
    assert evaluation.log == "not built within 2 s: stopped while building (rows=4, width=64)"


@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("os.abort()", "the process died of SIGABRT"),
        ("ctypes.string_at(0)", "the process died of SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "the process died of SIGKILL"),
        ("os._exit(0)", "the process exited with code 0"),
    ],
)
def test_a_build_that_takes_the_process_down_is_a_runtime_error_with_its_last_words(
    death: str, how: str
) -> None:
    source = f"import ctypes, os\nprint('last words', flush=True)\ndef build(axes, knobs):\n    {death}"
    evaluation = verdict(source)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert evaluation.log.startswith(f"{how} while building (rows=4, width=64)")
    assert "last words" in evaluation.log


def test_output_of_any_length_is_cut_to_its_end() -> None:
    source = "import os\nprint('x' * 10_000_000)\nprint('the end', flush=True)\nos.abort()"
    evaluation = verdict(source)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert evaluation.log.endswith("the end")
    assert len(evaluation.log) < 5000


def test_writing_to_the_result_channel_is_rejected() -> None:
    source = "import os, sys\nos.write(int(sys.argv[2]), b'{}\\n')\ndef build(axes, knobs): return print"
    assert verdict(source).status is Status.REJECTED


def test_closing_the_result_channel_is_a_runtime_error() -> None:
    source = "import os, sys\nos.close(int(sys.argv[2]))\ndef build(axes, knobs): return print"
    evaluation = verdict(source)
    assert evaluation.status is Status.RUNTIME_ERROR
    assert "Bad file descriptor" in evaluation.log


@pytest.mark.parametrize(
    ("knobs", "log"),
    [
        ({"width_bit": 32}, "unknown knob 'width_bit'; this task has: width_bits"),
        ({"width_bits": 48}, "knob 'width_bits' cannot be 48; allowed: 32, 64"),
    ],
)
def test_a_wrong_knob_is_a_compile_error_that_names_it(knobs: dict[str, int], log: str) -> None:
    job = make_job(stage="build", candidates=(Candidate(id="c", source="run = print", knobs=knobs),))
    (evaluation,) = run_job(job)
    assert (evaluation.status, evaluation.log) == (Status.COMPILE_ERROR, log)


def test_secrets_of_the_environment_do_not_reach_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("CUDA_MARK", "seen")
    source = "import os\nraise ValueError(sorted(os.environ))"
    log = verdict(source).log
    assert "CUDA_MARK" in log
    assert "ANTHROPIC_API_KEY" not in log


def test_an_unknown_arch_or_workload_is_one_sentence() -> None:
    with pytest.raises(ArchError, match=r"^unknown arch 'sm_91': known are sm_90a, sm_100a, sm_103a$"):
        run_job(make_job(HONEST, arch="sm_91"))
    with pytest.raises(TaskError, match=r"^task normalise_rows has no workload 'huge'$"):
        run_job(make_job(HONEST, workload_uuids=("huge",)))


def test_candidates_build_side_by_side_and_return_in_the_jobs_order() -> None:
    source = "import time\ntime.sleep({s})\ndef build(axes, knobs): return print"
    seen: list[str] = []
    job = make_job(source.format(s=1.5), source.format(s=0), stage="build")
    evaluations = run_job(job, parallel_builds=2, on_result=lambda e: seen.append(e.candidate_id))
    assert seen == ["c1", "c0"]
    assert [e.candidate_id for e in evaluations] == ["c0", "c1"]


def test_verdicts_already_there_are_kept_and_not_reached_again() -> None:
    job = make_job("def build(axes, knobs): return print", "raise ValueError", stage="build")
    seen: list[str] = []
    first = {e.candidate_id: e for e in run_job(job)}
    again = run_job(job, there={"c1": first["c1"]}, on_result=lambda e: seen.append(e.candidate_id))
    assert seen == ["c0"]
    assert again[1] is first["c1"]


def test_stopping_kills_the_children(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    source = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    stop = threading.Event()
    pids: list[int] = []

    def stop_once_started() -> None:
        pids.extend(_wait_for(mark))
        stop.set()

    watcher = threading.Thread(target=stop_once_started)
    watcher.start()
    with pytest.raises(Cancelled):
        run_job(make_job(source, stage="build"), stop=stop)
    watcher.join()
    assert not _alive(pids[0])


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    source = (
        "import os, subprocess, sys, time\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(mark)!r}, 'w').write(f'{{os.getpid()}} {{grandchild.pid}}')\n"
        "time.sleep(600)"
    )
    job = tmp_path / "job.json"
    job.write_text(make_job(source, source, stage="build").model_dump_json())
    process = subprocess.Popen([sys.executable, "-c", KEEPER, str(job)], stderr=subprocess.DEVNULL)
    pids = _wait_for(mark)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=10)
    assert not any(_alive(pid) for pid in pids)


def test_a_killed_keeper_takes_the_child_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    source = f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    job = tmp_path / "job.json"
    job.write_text(make_job(source, stage="build").model_dump_json())
    process = subprocess.Popen([sys.executable, "-c", KEEPER, str(job)])
    (pid,) = _wait_for(mark)
    process.kill()
    process.wait(timeout=10)
    deadline = time.monotonic() + 5
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_error_and_not_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (small / "filler").write_bytes(b"x" * 60_000)
        monkeypatch.setattr("tempfile.tempdir", str(small))
        with pytest.raises(OSError, match="No space left on device"):
            run_job(make_job("#" * 100_000 + "\n" + HONEST, stage="build"))
        assert [path.name for path in small.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_disk_that_fills_up_while_building_is_not_held_against_the_candidate() -> None:
    source = "import errno\ndef build(axes, knobs): raise OSError(errno.ENOSPC, 'No space left on device')"
    with pytest.raises(MachineError, match="No space left on device: make room"):
        verdict(source)


def test_judging_needs_no_third_party_package_but_torch_numpy_pydantic_and_the_dsl() -> None:
    probe = (
        "import sys, json\n"
        "import kwiki_kernels.worker, kwiki_kernels.child, kwiki_kernels.judge\n"
        "light = 'torch' not in sys.modules and 'cutlass' not in sys.modules\n"
        "import kwiki_kernels.contestant, kwiki_kernels.examiner\n"
        "print(json.dumps([light, sorted({name.split('.')[0] for name in sys.modules})]))"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    light, loaded = json.loads(answer.stdout)
    assert light
    foreign = {"anthropic", "chromadb", "filelock", "kwiki_agent", "kwiki_ingest", "langgraph", "matplotlib"}
    foreign |= {"optuna", "packaging", "rich", "ruamel", "sentence_transformers"}
    assert not foreign & set(loaded)


@pytest.mark.parametrize(
    ("course", "status", "log"),
    [
        (Course(timed_out=True), Status.TIMEOUT, "not judged within 60 s: stopped on workload wide"),
        (Course(returncode=-11), Status.RUNTIME_ERROR, "the process died of SIGSEGV on workload wide"),
        (Course(returncode=0), Status.RUNTIME_ERROR, "the process exited with code 0 on workload wide"),
    ],
)
def test_what_was_judged_before_the_process_ended_is_kept(course: Course, status: Status, log: str) -> None:
    shapes = {"small": (4, 64), "wide": (2, 4096), "last": (1, 64)}
    job = make_job(HONEST, task_files=task_files(shapes=shapes), workload_uuids=tuple(shapes))
    bench = Bench(job, parse_task(job.task_files, {}, origin="test"), environment(None), None)
    passed = WorkloadResult(uuid="small", axes={"rows": 4, "width": 64}, status=Status.PASSED)
    course.messages += [Built(failures={}, reports=(), log=""), Ready()]
    course.results["small"] = passed
    course.workload = "wide"
    verdict = judge(course, bench, job.candidates[0])
    assert (verdict.status, verdict.log) == (status, f"workload wide: {log}")
    assert verdict.results[0] == passed
    assert (verdict.results[1].status, verdict.results[1].log) == (status, log)
    assert verdict.results[2].status is Status.UNMEASURED
    assert verdict.results[2].log == "not run: the process ended on workload wide"


def _wait_for(mark: Path) -> list[int]:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if mark.exists() and (text := mark.read_text()):
            return [int(pid) for pid in text.split()]
        time.sleep(0.05)
    raise AssertionError("the candidate never started")


def _alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
