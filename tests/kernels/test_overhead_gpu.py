"""What judging costs beyond building and the GPU's work, for a batch of twenty on all workloads of a task.

With `pytest -s`, each verdict as it falls, and where the time went.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from kwiki_kernels.account import Account
from kwiki_kernels.evaluation import Status
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import load_task

from tests.kernels.judge_samples import make_job
from tests.kernels.test_judge_gpu import RMSNORM, arch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_the_judges_own_share_of_a_batch_of_twenty_is_at_most_five_percent() -> None:
    task = load_task(RMSNORM)
    assert task.knob_space is not None
    points = itertools.product((128, 256), (1, 2), (1, 2, 4), (False, True))
    candidates = tuple(
        Candidate(
            id=f"c{number}",
            source=task.seed_for(arch()),
            knobs={
                **task.knob_space.default, "threads_per_row": threads, "rows_per_cta": rows,
                "tiles_per_cta": tiles, "stream_hint": hint,
            },
        )
        for number, (threads, rows, tiles, hint) in enumerate(itertools.islice(points, 20))
    )  # fmt: skip
    job = make_job(
        arch=arch(), candidates=candidates, task_files=task.files, protocol=Protocol(),
        workload_uuids=tuple(workload.uuid for workload in task.workloads),
    )  # fmt: skip
    accounts: list[Account] = []
    verdicts = run_job(
        job,
        on_result=lambda verdict: print(verdict.candidate_id, verdict.status, verdict.judge_s, flush=True),
        on_account=accounts.append,
    )
    (account,) = accounts
    print(account.sentence)
    assert {verdict.status for verdict in verdicts} == {Status.PASSED}
    assert account.own_share <= 0.05, account.sentence
