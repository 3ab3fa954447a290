"""Where jobs run: here, or wherever somebody carries the spool folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kwiki_kernels import spool
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Job
from kwiki_kernels.judge import run_job


class Executor(Protocol):
    """Takes jobs and gives verdicts back, at once or days later."""

    @property
    def name(self) -> str:
        """The word that selects it on the command line."""
        ...

    def submit(self, job: Job) -> None:
        """Take a job. Taking it twice is harmless."""
        ...

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """The job's verdicts, baselines first; None while they are not there."""
        ...


class LocalExecutor:
    """Judges on this machine, inside `submit`; Ctrl-C there kills what runs.

    `on_result` sees each verdict as it falls.
    """

    name = "local"

    def __init__(
        self,
        *,
        parallel_builds: int | None = None,
        on_result: Callable[[Evaluation], None] = lambda _: None,
    ) -> None:
        self.parallel_builds, self.on_result = parallel_builds, on_result
        self.verdicts: dict[str, list[Evaluation]] = {}

    def submit(self, job: Job) -> None:
        """Judge the job; raises as `run_job`."""
        if job.id not in self.verdicts:
            self.verdicts[job.id] = run_job(
                job, parallel_builds=self.parallel_builds, on_result=self.on_result
            )

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """The verdicts of a job submitted to this object."""
        return self.verdicts.get(job_id)


class SpoolExecutor:
    """Leaves jobs in a folder that `python -m kwiki_kernels.worker` processes on another machine."""

    name = "spool"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, job: Job) -> None:
        """Write the job's file; raises SpoolError where another job has its id."""
        spool.write_job(self.folder, job)

    def collect(self, job_id: str) -> list[Evaluation] | None:
        """Read verdicts back; raises SpoolError where they are damaged, changed or of another version."""
        return spool.read_results(self.folder, job_id)
