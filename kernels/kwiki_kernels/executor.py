"""Where jobs run: here, or wherever somebody carries the spool folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from kwiki_kernels import spool
from kwiki_kernels.account import Account
from kwiki_kernels.device import local_gpu
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Job
from kwiki_kernels.judge import run_job


class Executor(Protocol):
    """Takes jobs and gives verdicts back, at once or days later."""

    @property
    def name(self) -> str:
        """The word that selects it on the command line."""
        ...

    def measures(self, arch: str) -> bool:
        """Whether judging there can time a kernel for this architecture."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job. Taking it twice is harmless."""
        ...

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """The job's verdicts, baselines first; None while they are not there."""
        ...


class LocalExecutor:
    """Judges on this machine, inside `submit`; Ctrl-C there, or setting `stop`, kills what runs.

    `on_result` sees each verdict as it falls, `on_account` where a job's time went. Verdicts are kept
    in `folder`, a spool of its own, so that a run that was killed measures nothing twice; without a
    folder they live as long as this object.
    """

    name = "local"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        parallel_builds: int | None = None,
        on_result: Callable[[Evaluation], None] = lambda _: None,
        on_account: Callable[[Account], None] = lambda _: None,
        stop: threading.Event | None = None,
    ) -> None:
        self.folder = folder
        self.run = partial(
            run_job, parallel_builds=parallel_builds, on_result=on_result, on_account=on_account, stop=stop
        )
        self.verdicts: dict[str, list[Evaluation]] = {}

    def measures(self, arch: str) -> bool:
        """Whether this machine's GPU is of that architecture."""
        gpu = local_gpu()
        return gpu is not None and gpu.arch == arch

    def submit(self, job: Job) -> None:
        """Judge the job; raises as `run_job`, and SpoolError where the folder is not to be trusted."""
        if self.collect(job.id) is not None:
            return
        if self.folder is None:
            self.verdicts[job.id] = self.run(job)
        else:
            spool.write_job(self.folder, job)
            run_spooled(self.folder, job, self.run)

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """The verdicts of a job that was submitted."""
        return spool.read_results(self.folder, job_id) if self.folder else self.verdicts.get(job_id)


class SpoolExecutor:
    """Leaves jobs in a folder that `python -m kwiki_kernels.worker` processes on another machine."""

    name = "spool"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def measures(self, arch: str) -> bool:  # noqa: ARG002
        """Taken for granted: a spool exists for the machine that can."""
        return True

    def submit(self, job: Job) -> None:
        """Write the job's file; raises SpoolError where another job has its id."""
        spool.write_job(self.folder, job)

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """Read verdicts back; raises SpoolError where they are damaged, changed or of another version."""
        return spool.read_results(self.folder, job_id)


def run_spooled(folder: Path, job: Job, run: Callable[..., list[Evaluation]]) -> None:
    """Judge what has no verdict in the folder yet with `run`, a form of `run_job`; then seal the job."""
    there = spool.finished_candidates(folder, job)
    verdicts = run(job, there=there, keep=partial(spool.write_result, folder))
    spool.write_done(folder, job, [verdict.candidate_id for verdict in verdicts])
