"""From what the user asked to a loop that can run: tasks by name, contracts, executors."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from kwiki_ingest.wiki import open_wiki
from kwiki_kernels.device import check_arch, local_gpu
from kwiki_kernels.evaluation import Knobs, KnobValue
from kwiki_kernels.executor import Executor, LocalExecutor, SpoolExecutor
from kwiki_kernels.job import Protocol
from kwiki_kernels.task import Task, TaskError, load_task

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract
from kwiki_agent.nodes import Loop
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import RunFolder, create_run

COMPILE_ONLY_ARCH = "sm_100a"
"""What a machine without a GPU compiles for when the user names nothing."""


def new_run(
    task_name: str,
    *,
    runs_dir: Path,
    arch: str | None = None,
    workloads: str = "all",
    run_id: str | None = None,
    wiki: Path | None = None,
    spool: Path | None = None,
    fixed_knobs: Sequence[str] = (),
    max_candidates: int = 24,
    batch: int = 8,
    seed: int = 0,
    use_cards: bool = True,
    search_only: bool = False,
    protocol: Protocol | None = None,
) -> RunFolder:
    """Check what was asked, freeze it in a contract and make the run folder.

    Raises:
        AgentError, TaskError, kwiki_kernels.errors.KernelError, kwiki_ingest.errors.WikiError:
            something asked for does not exist; one sentence each.
    """
    folder = find_task(task_name)
    task = load_task(folder)
    gpu = local_gpu()
    arch = arch or (gpu and gpu.arch) or COMPILE_ONLY_ARCH
    check_arch(arch)
    task.seed_for(arch)
    if task.knob_space is None:
        raise AgentError(f"task {task.name} has no knobs.json: the tuner has nothing to search")
    now = dt.datetime.now(dt.UTC)
    contract = Contract(
        run_id=run_id or f"{task.name}-{arch}-{now:%Y%m%d-%H%M%S}-s{seed}",
        task_dir=str(folder),
        task_name=task.name,
        arch=arch,
        workloads=_workloads(task, workloads),
        max_candidates=max_candidates,
        batch=batch,
        fixed_knobs=_fixed_knobs(task, fixed_knobs),
        use_cards=use_cards,
        search_only=search_only,
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
        policy=Tuner(),
        builder=local,
        executor=executor,
        say=say,
    )


def find_task(name: str) -> Path:
    """A task folder by path, or by name among the tasks that come with the package.

    Raises:
        AgentError: neither exists.
    """
    if (Path(name) / "definition.json").is_file():
        return Path(name).resolve()
    shipped = shipped_tasks()
    for folder in shipped:
        if name in (
            folder.name,
            json.loads((folder / "definition.json").read_text(encoding="utf-8"))["name"],
        ):
            return folder
    known = ", ".join(folder.name for folder in shipped)
    raise AgentError(f"no task '{name}': give a folder with a definition.json, or one of: {known}")


def shipped_tasks() -> list[Path]:
    """The task folders beside the code: in a checkout `kernels/tasks`, in a wheel `starter_tasks`."""
    package = Path(str(files("kwiki_kernels")))
    root = next((p for p in (package / "starter_tasks", package.parent / "tasks") if p.is_dir()), package)
    return sorted(folder.parent for folder in root.glob("*/definition.json"))


def _workloads(task: Task, asked: str) -> tuple[str, ...]:
    if asked == "all":
        return tuple(workload.uuid for workload in task.workloads)
    uuids = tuple(dict.fromkeys(asked.split(",")))
    for uuid in uuids:
        try:
            task.workload(uuid)
        except TaskError as error:
            some = ", ".join(w.uuid for w in task.workloads[:4])
            raise AgentError(f"{error}; it has {len(task.workloads)}: {some}, ...") from None
    return uuids


def _fixed_knobs(task: Task, asked: Sequence[str]) -> Knobs:
    """`name=value` pairs, typed by the task's knob space."""
    assert task.knob_space is not None
    fixed: Knobs = {}
    for pair in asked:
        name, _, text = pair.partition("=")
        known = task.knob_space.knobs
        if name not in known:
            raise AgentError(f"unknown knob '{name}'; {task.name} has: {', '.join(known)}")
        matching = [value for value in known[name].values if _text(value) == text.lower()]
        if not matching:
            raise AgentError(
                f"knob '{name}' cannot be '{text}'; allowed: {', '.join(map(_text, known[name].values))}"
            )
        fixed[name] = matching[0]
    return fixed


def _text(value: KnobValue) -> str:
    return str(value).lower()
