"""Jobs and verdicts through a folder, interrupted and damaged in every way."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from kwiki_kernels import spool
from kwiki_kernels.errors import MachineError, SpoolError
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.executor import Executor, LocalExecutor, SpoolExecutor, run_spooled
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.worker import alone, main

from tests.kernels.judge_samples import make_job, task_files

QUICK = "def build(axes, knobs): return print"
JOB = make_job(QUICK, QUICK + "  # other", stage="build", baselines=("baseline",))


def result_file(folder: Path, name: str) -> Path:
    return folder / "results" / "job" / name


def work(folder: Path) -> int:
    return main([str(folder), "--once"])


@pytest.mark.parametrize("kind", ["local", "spool"])
def test_both_executors_give_the_same_verdicts(kind: str, tmp_path: Path) -> None:
    executor: Executor = LocalExecutor() if kind == "local" else SpoolExecutor(tmp_path)
    assert executor.name == kind
    assert executor.collect(JOB.id) is None
    executor.submit(JOB)
    executor.submit(JOB)
    if kind == "spool":
        assert executor.collect(JOB.id) is None
        assert work(tmp_path) == 0
    evaluations = executor.collect(JOB.id)
    assert evaluations is not None
    assert [e.candidate_id for e in evaluations] == ["baseline", "c0", "c1"]
    assert {e.status for e in evaluations} == {Status.UNMEASURED}
    assert {e.job_id for e in evaluations} == {"job"}


def test_a_local_executor_with_a_folder_remembers_what_was_judged(tmp_path: Path) -> None:
    seen: list[str] = []
    LocalExecutor(tmp_path).submit(JOB)
    result_file(tmp_path, "done.json").unlink()
    result_file(tmp_path, "c1.json").unlink()
    second = LocalExecutor(tmp_path, on_result=lambda e: seen.append(e.candidate_id))
    assert second.collect(JOB.id) is None
    second.submit(JOB)
    assert seen == ["c1"]
    third = LocalExecutor(tmp_path).collect(JOB.id)
    assert third is not None
    assert [e.candidate_id for e in third] == ["baseline", "c0", "c1"]


def test_an_interrupted_job_goes_on_where_it_stopped(tmp_path: Path) -> None:
    SpoolExecutor(tmp_path).submit(JOB)
    work(tmp_path)
    before = result_file(tmp_path, "c0.json").read_bytes()
    result_file(tmp_path, "done.json").unlink()
    result_file(tmp_path, "c1.json").unlink()
    result_file(tmp_path, "baseline.json").write_text("{ torn")
    assert work(tmp_path) == 0
    assert result_file(tmp_path, "c0.json").read_bytes() == before
    evaluations = SpoolExecutor(tmp_path).collect(JOB.id)
    assert evaluations is not None
    assert len(evaluations) == 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_killed_in_the_middle_is_simply_started_again(how: signal.Signals, tmp_path: Path) -> None:
    slow = "import time\ntime.sleep(600)"
    spool.write_job(tmp_path, make_job(QUICK, slow, stage="build"))
    command = [sys.executable, "-m", "kwiki_kernels.worker", str(tmp_path)]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not result_file(tmp_path, "c0.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.send_signal(how)
    _, errors = worker.communicate(timeout=10)
    assert worker.returncode == 130
    assert errors.endswith("stopped; start the worker again to go on\n")
    assert "Traceback" not in errors
    assert [p.name for p in result_file(tmp_path, "").iterdir()] == ["c0.json"]


def test_a_job_that_is_done_is_not_judged_again(tmp_path: Path) -> None:
    SpoolExecutor(tmp_path).submit(JOB)
    work(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in result_file(tmp_path, "").iterdir()}
    work(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in result_file(tmp_path, "").iterdir()} == before


def test_a_result_changed_after_the_job_was_done_is_refused(tmp_path: Path) -> None:
    executor = SpoolExecutor(tmp_path)
    executor.submit(JOB)
    work(tmp_path)
    path = result_file(tmp_path, "c0.json")
    path.write_text(path.read_text().replace("UNMEASURED", "PASSED"))
    with pytest.raises(SpoolError, match=r"c0\.json was changed after the job was done: remove its results"):
        executor.collect(JOB.id)
    path.unlink()
    with pytest.raises(SpoolError, match=r"c0\.json is missing: copy the results folder again"):
        executor.collect(JOB.id)


def test_a_foreign_seal_is_refused(tmp_path: Path) -> None:
    executor = SpoolExecutor(tmp_path)
    executor.submit(JOB)
    work(tmp_path)
    seal = result_file(tmp_path, "done.json")
    seal.write_text(json.dumps({**json.loads(seal.read_text()), "format": 2}))
    with pytest.raises(SpoolError, match=r"done\.json is damaged or of another version: format"):
        executor.collect(JOB.id)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            JOB.model_dump_json().replace('"format":1', '"format":2'),
            "has job format 2 (kernel-wiki 0.1.0), this kernel-wiki reads 1",
        ),
        (JOB.model_dump_json()[:100], "job.json is not a job: "),
        (
            JOB.model_dump_json().replace('"seed":7', '"seed":7,"colour":1').replace("0.1.0", "9.9"),
            "written by kernel-wiki 9.9, is not a job here: colour: Extra inputs are not permitted",
        ),
        (JOB.model_dump_json().replace('"id":"job"', '"id":"other"'), "job.json holds job 'other'"),
        (JOB.model_dump_json().replace("sm_90a", "sm_91"), "unknown arch 'sm_91': known are"),
        (JOB.model_dump_json().replace('"small","wide"', '"huge"'), "has no workload 'huge'"),
        (JOB.model_dump_json().replace('"small","wide"', ""), "is not a job here: workload_uuids: "),
        (
            JOB.model_dump_json().replace('"id":"c1"', '"id":"c0"'),
            "is not a job here: top level: 'c0' names two kernels",
        ),
        (JOB.model_dump_json().replace('"definition.json"', '"absent.json"'), "no definition.json"),
    ],
)
def test_a_job_that_cannot_be_processed_fails_with_one_sentence_and_harms_no_other(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = JOB.model_copy(update={"id": "zz-good"})
    spool.write_job(tmp_path, good)
    (tmp_path / "jobs" / "job.json").write_text(text)
    assert work(tmp_path) == 1
    assert sentence in capsys.readouterr().err
    with pytest.raises(SpoolError, match="job job was not processed: ") as raised:
        spool.read_results(tmp_path, "job")
    assert sentence in str(raised.value)
    assert spool.read_results(tmp_path, "zz-good") is not None


def test_a_job_seen_while_it_was_still_copied_is_processed_once_it_is_whole(tmp_path: Path) -> None:
    whole = spool.write_job(tmp_path, JOB).read_bytes()
    (tmp_path / "jobs" / "job.json").write_bytes(whole[:100])
    assert work(tmp_path) == 1
    assert list(spool.read_jobs(tmp_path)) == []
    (tmp_path / "jobs" / "job.json").write_bytes(whole)
    assert spool.read_results(tmp_path, "job") is None
    assert work(tmp_path) == 0
    assert len(spool.read_results(tmp_path, "job") or ()) == 3


def test_of_two_workers_on_one_job_the_first_verdict_stays(tmp_path: Path) -> None:
    spool.write_job(tmp_path, JOB)
    work(tmp_path)
    result_file(tmp_path, "done.json").unlink()
    first = spool.finished_candidates(tmp_path, JOB)
    spool.write_result(tmp_path, first["c0"].model_copy(update={"created": "later"}))
    assert spool.finished_candidates(tmp_path, JOB) == first
    spool.write_done(tmp_path, JOB, ["baseline", "c0", "c1"])
    spool.write_result(tmp_path, first["c0"].model_copy(update={"code_hash": "another kernel"}))
    assert spool.read_results(tmp_path, "job") == list(first.values())


def test_a_gpu_that_goes_away_leaves_the_job_pending_and_its_verdicts_there(tmp_path: Path) -> None:
    spool.write_job(tmp_path, JOB)
    elsewhere = LocalExecutor()
    elsewhere.submit(JOB)
    verdicts = elsewhere.collect(JOB.id) or []

    def run(
        _: Job, *, there: Mapping[str, Evaluation], keep: Callable[[Evaluation], None]
    ) -> list[Evaluation]:
        missing = [verdict for verdict in verdicts if verdict.candidate_id not in there]
        for verdict in missing[:2]:
            keep(verdict)
        if len(missing) > 2:
            raise MachineError("the GPU cannot be used")
        return verdicts

    with pytest.raises(MachineError):
        run_spooled(tmp_path, JOB, run)
    assert [path.stem for path in spool.read_jobs(tmp_path)] == ["job"]
    assert spool.finished_candidates(tmp_path, JOB).keys() == {"baseline", "c0"}
    run_spooled(tmp_path, JOB, run)
    assert spool.read_results(tmp_path, "job") == verdicts


def test_verdicts_of_another_job_of_the_same_name_are_refused(tmp_path: Path) -> None:
    spool.write_job(tmp_path / "there", JOB)
    work(tmp_path / "there")
    spool.write_job(tmp_path / "here", JOB.model_copy(update={"seed": 8}))
    shutil.copytree(tmp_path / "there" / "results", tmp_path / "here" / "results")
    with pytest.raises(SpoolError, match="holds the verdicts of another job of that name"):
        spool.read_results(tmp_path / "here", "job")


def test_the_worker_needs_nothing_but_the_spool_and_the_judge(tmp_path: Path) -> None:
    spool.write_job(tmp_path, JOB)
    assert json.loads((tmp_path / "jobs" / "job.json").read_text())["kernel_wiki_version"] == "0.1.0"
    not_there = "kwiki_agent", "kwiki_ingest", "chromadb", "langgraph", "optuna", "safetensors", "filelock"
    code = (
        f"import sys\nfor name in {not_there!r}: sys.modules[name] = None\n"
        "from kwiki_kernels.worker import main\nsys.exit(main([sys.argv[1], '--once']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert len(spool.read_results(tmp_path, "job") or ()) == 3


def test_another_job_of_the_same_id_is_refused(tmp_path: Path) -> None:
    spool.write_job(tmp_path, JOB)
    with pytest.raises(SpoolError, match="holds another job: take a new job id"):
        spool.write_job(tmp_path, JOB.model_copy(update={"seed": 8}))


def test_a_verdict_on_other_code_does_not_count_as_done(tmp_path: Path) -> None:
    spool.write_job(tmp_path, JOB)
    work(tmp_path)
    changed = JOB.model_copy(update={"candidates": (Candidate(id="c0", source=QUICK + "  # new"),)})
    assert spool.finished_candidates(tmp_path, changed).keys() == {"baseline", "c1"}


def test_ids_that_are_no_file_names_stay_apart_and_inside_the_folder(tmp_path: Path) -> None:
    names = ["a/b", "a_b", "../x", "done", "failed", ".hidden", "baseline:compiled"]
    candidates = tuple(Candidate(id=name, source=QUICK) for name in names)
    spool.write_job(tmp_path, make_job(stage="build", candidates=candidates, id="runs/1"))
    assert work(tmp_path) == 0
    evaluations = spool.read_results(tmp_path, "runs/1")
    assert evaluations is not None
    assert [e.candidate_id for e in evaluations] == names
    assert {path.name for path in tmp_path.iterdir()} == {"jobs", "results", ".worker.lock"}


def test_a_second_worker_on_the_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alone(tmp_path):
        assert work(tmp_path) == 1
    assert "another worker processes" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as exit_:
        work(tmp_path / "absent")
    assert exit_.value.code == 2


def test_a_failing_reference_of_the_task_is_not_held_against_a_candidate_that_builds(tmp_path: Path) -> None:
    files = task_files(**{"reference.py": "raise ValueError"})
    spool.write_job(tmp_path, make_job(QUICK, stage="build", task_files=files))
    assert work(tmp_path) == 0
