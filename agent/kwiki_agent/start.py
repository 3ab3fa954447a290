"""From what the user asked to a loop that can run: tasks by name, contracts, executors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kwiki_ingest.wiki import Wiki, open_wiki
from kwiki_kernels.executor import Executor, LocalExecutor, SpoolExecutor
from kwiki_kernels.job import Protocol
from kwiki_kernels.task import Task, load_task
from pydantic import ValidationError

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract, PolicyName
from kwiki_agent.lookup import choose_arch, choose_representatives, choose_workloads, find_task, parse_knobs
from kwiki_agent.loop import Loop
from kwiki_agent.policy import Policy, Reviewer
from kwiki_agent.policy.accounting import Models, check_key, check_prices
from kwiki_agent.policy.external import External
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import RunFolder, create_run
from kwiki_agent.submission import check_contract


def new_run(
    task_name: str,
    *,
    runs_dir: Path,
    arch: str | None = None,
    workloads: str = "all",
    screen: int = 0,
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
    models: Models | None = None,
    limits: Mapping[str, Any] = {},
) -> RunFolder:
    """Check what was asked, freeze it in a contract and make the run folder.

    Args:
        screen: time candidates on so many representative workloads first; 0: on all at once.
        models: for policies that ask any.
        limits: budgets and constraints by the contract's names; the others stay at their defaults.

    Raises:
        AgentError, TaskError, kwiki_kernels.errors.KernelError, kwiki_ingest.errors.WikiError:
            something asked for does not exist; one sentence each.
    """
    folder = find_task(task_name)
    task = load_task(folder)
    arch = choose_arch(arch)
    if policy == "tuner":
        _check_for_tuner(task, arch)
    if policy == "claude":
        check_key()
        check_prices(limits, models)
    uuids = choose_workloads(task, workloads)
    now = dt.datetime.now(dt.UTC)
    contract = _contract(
        run_id=run_id or f"{task.name}-{arch}-{now:%Y%m%d-%H%M%S}-s{seed}",
        task_dir=str(folder),
        task_name=task.name,
        arch=arch,
        workloads=uuids,
        representatives=choose_representatives(task, uuids, screen),
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
        model=models and models.author,
        reviewer=models and models.reviewer,
        **limits,
    )
    if policy == "tuner":
        check_contract("the seed that the tuner would vary", task.seed_for(arch), contract)
    return create_run(runs_dir, contract)


def make_loop(run: RunFolder, say: Callable[[str], None]) -> Loop:
    """Everything the nodes need, from the contract alone, so that a resumed run is the same run."""
    contract = run.contract
    local = LocalExecutor(
        run.path / "spool", on_result=lambda verdict: say(f"  {verdict.candidate_id} {verdict.status}")
    )
    executor: Executor = SpoolExecutor(Path(contract.spool_dir)) if contract.spool_dir else local
    wiki = open_wiki(Path(contract.wiki_dir))
    return Loop(
        run=run,
        contract=contract,
        task=load_task(Path(contract.task_dir)),
        wiki=wiki,
        policy=_policy(run, wiki, local, say),
        reviewer=_reviewer(run, say),
        builder=local,
        executor=executor,
        say=say,
    )


def _contract(**fields: Any) -> Contract:
    try:
        return Contract(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise AgentError(f"the contract's {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _check_for_tuner(task: Task, arch: str) -> None:
    task.seed_for(arch)
    if task.knob_space is None:
        raise AgentError(
            f"task {task.name} has no knobs.json, so the tuner has nothing to search: "
            "take --policy external and hand kernels in"
        )


def _reviewer(run: RunFolder, say: Callable[[str], None]) -> Reviewer | None:
    if run.contract.reviewer is None:
        return None
    from kwiki_agent.policy.reviewer import ModelReviewer

    return ModelReviewer(run, run.contract, say)


def _policy(run: RunFolder, wiki: Wiki, builder: Executor, say: Callable[[str], None]) -> Policy:
    match run.contract.policy:
        case "tuner":
            return Tuner()
        case "external":
            return External(run)
        case "claude":
            from kwiki_agent.policy.claude import Claude

            return Claude(run, wiki, builder, say)
