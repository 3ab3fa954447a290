"""What the user named: tasks, workloads, architectures and knobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from kwiki_kernels.device import check_arch, local_gpu
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Knobs, KnobValue
from kwiki_kernels.task import Task

from kwiki_agent.contract import AgentError

COMPILE_ONLY_ARCH = "sm_100a"
"""What a machine without a GPU compiles for when the user names nothing."""


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


def choose_workloads(task: Task, asked: str) -> tuple[str, ...]:
    """The uuids of a comma-separated list, or all of the task's for `all`.

    Raises:
        AgentError: the task has no such workload.
    """
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


def choose_representatives(task: Task, uuids: Sequence[str], n: int) -> tuple[str, ...]:
    """`n` of these workloads, from the smallest to the largest by bytes moved, evenly spaced between."""
    if n >= len(uuids):
        return ()
    definition = task.definition
    by_size = sorted(uuids, key=lambda uuid: definition.bytes_moved(_axes(task, uuid)))
    steps = [round(i * (len(by_size) - 1) / max(n - 1, 1)) for i in range(n)]
    return tuple(by_size[-1] if n == 1 else by_size[step] for step in steps)


def _axes(task: Task, uuid: str) -> dict[str, int]:
    return task.definition.axis_values(task.workload(uuid).axes)


def choose_arch(asked: str | None) -> str:
    """The architecture asked for, else this machine's, else the one to compile for without a GPU.

    Raises:
        ArchError: it is unknown.
    """
    gpu = local_gpu()
    arch = asked or (gpu and gpu.arch) or COMPILE_ONLY_ARCH
    check_arch(arch)
    return arch


def parse_knobs(task: Task, asked: Sequence[str]) -> Knobs:
    """`name=value` pairs, typed by the task's knob space.

    Raises:
        AgentError: the task has no knobs, or no such knob or value.
    """
    if task.knob_space is None:
        if asked:
            raise AgentError(f"{task.name} has no knobs.json, so '{asked[0]}' cannot be set")
        return {}
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
