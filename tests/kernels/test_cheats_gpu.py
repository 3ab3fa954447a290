"""The threat list on a real GPU: every cheat caught with the audit off, no honest kernel refused."""

from __future__ import annotations

import pytest
import torch
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate, Defences
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import load_task

from tests.kernels.cheat_samples import CHEATS, HONEST, TWINS, jobs, row_of
from tests.kernels.judge_samples import make_job
from tests.kernels.test_audit import SEEDS
from tests.kernels.test_judge_gpu import QUICK, RMSNORM, arch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

BY_DEED_ALONE = Defences(audit=False, isolation=())
EVERYTHING = Defences()
ON_GPU = {name: text for name, text in CHEATS.items() if row_of(name) not in {1, 19}}
"""Row 1 is a matter of time, not of a verdict; row 19 is shown with isolation, on the CPU."""
EXPECTED = {
    2: (Status.REJECTED, "the kernel started a thread"),
    4: (Status.REJECTED, "replaced torch.cuda"),
    8: (Status.REJECTED, "input 'x' was changed"),
    12: (Status.REJECTED, "a kernel ran that the candidate did not write"),
    13: (Status.REJECTED, "the kernel searched the memory"),
    14: (Status.REJECTED, "result channel"),
    15: (Status.REJECTED, "set L2 aside"),
    16: (Status.REJECTED, "9 of 10 timed calls did not work"),
    18: (Status.REJECTED, "replaced kwiki_kernels.timing._elapsed_us"),
}
"""Row to verdict; the others are INCORRECT_NUMERICAL, or REJECTED where the form shows it first."""


def judged(sources: dict[str, str], defences: Defences) -> dict[str, Evaluation]:
    return {
        evaluation.candidate_id: evaluation
        for job in jobs(sources, defences, arch=arch())
        for evaluation in run_job(job, on_result=_say)
    }


def _say(verdict: Evaluation) -> None:
    """With `pytest -s`, each verdict as it falls."""
    first = verdict.log.partition("\n")[0]
    print(f"\n{verdict.candidate_id} {verdict.status} {verdict.judge_s} s {first}", flush=True)


@pytest.fixture(scope="module")
def cheats() -> dict[str, Evaluation]:
    return judged(ON_GPU, BY_DEED_ALONE)


@pytest.fixture(scope="module")
def honest() -> dict[str, Evaluation]:
    return judged(HONEST, EVERYTHING)


@pytest.mark.parametrize("name", ON_GPU)
def test_a_cheat_is_caught_on_the_gpu_by_what_it_does(name: str, cheats: dict[str, Evaluation]) -> None:
    verdict = cheats[name]
    assert verdict.status in {Status.REJECTED, Status.INCORRECT_NUMERICAL}, verdict.log
    status, log = EXPECTED.get(row_of(name), (verdict.status, ""))
    assert verdict.status is status, verdict.log
    assert log in verdict.log


@pytest.mark.parametrize("name", HONEST)
def test_no_honest_kernel_is_refused(name: str, honest: dict[str, Evaluation]) -> None:
    assert honest[name].status is Status.PASSED, honest[name].log
    assert all(result.timing is not None for result in honest[name].results)


def test_the_seed_of_rmsnorm_passes_every_defence() -> None:
    task = load_task(RMSNORM)
    assert task.knob_space is not None
    candidate = Candidate(id="seed", source=SEEDS["rmsnorm/kernel.py"], knobs=task.knob_space.default)
    job = make_job(
        arch=arch(), candidates=(candidate,), task_files=task.files, protocol=QUICK, defences=EVERYTHING,
        workload_uuids=("h2048-t1", "h7168-t16384"),
    )  # fmt: skip
    (verdict,) = run_job(job)
    assert verdict.status is Status.PASSED, verdict.log


def test_work_on_a_side_stream_does_not_make_a_kernel_look_faster() -> None:
    name = "row01_side_stream"
    twin = next(twin for twin in TWINS if row_of(twin) == 1)
    verdicts = judged({name: CHEATS[name], twin: TWINS[twin]}, BY_DEED_ALONE)
    cheat = verdicts[name]
    if cheat.status is Status.PASSED:  # timed by events, and waited for
        fast, slow = cheat.results[0].timing, verdicts[twin].results[0].timing
        assert fast is not None
        assert slow is not None
        assert fast.median_us > 0.3 * slow.median_us
    else:
        caught = {Status.INCORRECT_NUMERICAL, Status.REJECTED, Status.RUNTIME_ERROR}
        assert cheat.status in caught, cheat.log
