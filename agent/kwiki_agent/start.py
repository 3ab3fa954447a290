"""From what the user asked to a loop that can run: tasks by name, contracts, executors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

from kwiki_ingest.wiki import open_wiki
from kwiki_kernels.executor import Executor, LocalExecutor, SpoolExecutor
from kwiki_kernels.job import Protocol
from kwiki_kernels.task import Task, load_task

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract, PolicyName
from kwiki_agent.lookup import choose_arch, choose_workloads, find_task, parse_knobs
from kwiki_agent.nodes import Loop
from kwiki_agent.policy import Policy
from kwiki_agent.policy.external import External
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import RunFolder, create_run


def new_run(
    task_name: str,
    *,
    runs_dir: Path,
    arch: str | None = None,
    workloads: str = "all",
    run_id: str | None = None,
    wiki: Path | None = None,
    policy: PolicyName = "tuner",
    spool: Path | None = None,
    fixed_knobs: Sequence[str] = (),
    max_candidates: int = 24,
    batch: int = 8,
    seed: int = 0,
    use_cards: bool = True,
    search_only: bool = False,
    stop_at: float | None = None,
    protocol: Protocol | None = None,
) -> RunFolder:
    """Check what was asked, freeze it in a contract and make the run folder.

    Raises:
        AgentError, TaskError, kwiki_kernels.errors.KernelError, kwiki_ingest.errors.WikiError:
            something asked for does not exist; one sentence each.
    """
    folder = find_task(task_name)
    task = load_task(folder)
    arch = choose_arch(arch)
    if policy == "tuner":
        _check_for_tuner(task, arch)
    now = dt.datetime.now(dt.UTC)
    contract = Contract(
        run_id=run_id or f"{task.name}-{arch}-{now:%Y%m%d-%H%M%S}-s{seed}",
        task_dir=str(folder),
        task_name=task.name,
        arch=arch,
        workloads=choose_workloads(task, workloads),
        policy=policy,
        max_candidates=max_candidates,
        batch=batch,
        fixed_knobs=parse_knobs(task, fixed_knobs),
        use_cards=use_cards,
        search_only=search_only,
        stop_at=stop_at,
        seed=seed,
        protocol=protocol or Protocol(),
        executor="spool" if spool else "local",
        spool_dir=str(spool.resolve()) if spool else None,
        wiki_dir=str(open_wiki(wiki).root.resolve()),
        kernel_wiki_version=__version__,
        created=now.isoformat(timespec="seconds"),
    )
    return create_run(runs_dir, contract)


def make_loop(run: RunFolder, say: Callable[[str], None]) -> Loop:
    """Everything the nodes need, from the contract alone, so that a resumed run is the same run."""
    contract = run.contract
    local = LocalExecutor(
        run.path / "spool", on_result=lambda verdict: say(f"  {verdict.candidate_id} {verdict.status}")
    )
    executor: Executor = SpoolExecutor(Path(contract.spool_dir)) if contract.spool_dir else local
    return Loop(
        run=run,
        contract=contract,
        task=load_task(Path(contract.task_dir)),
        wiki=open_wiki(Path(contract.wiki_dir)),
        policy=_policy(run),
        builder=local,
        executor=executor,
        say=say,
    )


def _check_for_tuner(task: Task, arch: str) -> None:
    task.seed_for(arch)
    if task.knob_space is None:
        raise AgentError(
            f"task {task.name} has no knobs.json, so the tuner has nothing to search: "
            "take --policy external and hand kernels in"
        )


def _policy(run: RunFolder) -> Policy:
    return External(run) if run.contract.policy == "external" else Tuner()
