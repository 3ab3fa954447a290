"""Drives one toy run in process after process, each killed with SIGKILL in another node: `TASK WIKI RUNS`.

The children are forked from a process that has imported everything, so that ten of them take seconds.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
from pathlib import Path
from typing import Any

from kwiki_agent import __version__, graph
from kwiki_agent.contract import Contract
from kwiki_agent.graph import STEPS, Step, drive
from kwiki_agent.loop import Loop
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import RunFolder, create_run
from kwiki_agent.state import RunState
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.task import load_task
from pydantic import TypeAdapter

from tests.agent.toy import FormulaExecutor

VERDICTS = TypeAdapter(list[Evaluation])


class KeptFormula(FormulaExecutor):
    """Keeps its verdicts on disk, as the executors of the package do, and a line for each judgement."""

    def __init__(self, folder: Path, *, measures: bool) -> None:
        super().__init__(measures=measures)
        self.folder = folder

    def submit(self, job: Job) -> None:
        if self.collect(job.id) is None:
            super().submit(job)
            (self.folder / f"{job.id}.json").write_bytes(VERDICTS.dump_json(self._results.pop(job.id)))

    def collect(self, job_id: str) -> list[Evaluation] | None:
        path = self.folder / f"{job_id}.json"
        return VERDICTS.validate_json(path.read_bytes()) if path.exists() else None

    def _evaluate(self, job: Job, candidate: Candidate) -> Evaluation:
        with (self.folder / "judged.txt").open("a") as stream:
            stream.write(f"{job.id}/{candidate.id}\n")
        return super()._evaluate(job, candidate)


def loop_for(run: RunFolder, wiki: Wiki) -> Loop:
    contract, kept = run.contract, run.path / "kept"
    kept.mkdir(exist_ok=True)
    return Loop(
        run=run, contract=contract, task=load_task(Path(contract.task_dir)), wiki=wiki, policy=Tuner(),
        builder=KeptFormula(kept, measures=False), executor=KeptFormula(kept, measures=True),
        say=lambda _: None,
    )  # fmt: skip


def new_run(runs: Path, run_id: str, task: str, wiki: Wiki) -> RunFolder:
    contract = Contract(
        run_id=run_id, task_dir=task, task_name="toy", arch="sm_90a", workloads=("n1", "n64", "n1024"),
        wiki_dir=str(wiki.root), batch=4, max_candidates=8, use_cards=False, kernel_wiki_version=__version__,
        created=dt.datetime.now(dt.UTC).isoformat(),
    )  # fmt: skip
    return create_run(runs, contract)


def killed_in(node: str, run: RunFolder, wiki: Wiki) -> int:
    """The wait status of a process that dies once this node has done its work, before its checkpoint."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    graph.STEPS = tuple(_dying(step) if step.__name__ == node else step for step in STEPS)
    drive(loop_for(run, wiki))
    os._exit(0)


def _dying(step: Step) -> Step:
    def dying(state: RunState, loop: Loop) -> Any:
        step(state, loop)
        os.kill(os.getpid(), signal.SIGKILL)

    dying.__name__ = step.__name__
    return dying


def main(task: str, wiki_root: str, runs: str) -> None:
    wiki = Wiki(Path(wiki_root))
    run = new_run(Path(runs), "killed", task, wiki)
    for step in STEPS:
        status = killed_in(step.__name__, run, wiki)
        assert os.WIFSIGNALED(status), f"{step.__name__} was never reached"
    assert killed_in("none", run, wiki) == 0
    drive(loop_for(new_run(Path(runs), "untroubled", task, wiki), wiki))


if __name__ == "__main__":
    main(*sys.argv[1:])
