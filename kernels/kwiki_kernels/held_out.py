"""Workloads that no candidate has seen: a kernel that knows the public shapes by heart fails on them.

Each lies between two workloads of the task, at the same fraction of the way on every axis, so that
axes which grow together still do. Sizes are odd multiples of what all observed values of an axis
have in common: as ragged as the task allows, and nothing that it rules out.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from kwiki_kernels.definition import Definition, VarAxis, Workload
from kwiki_kernels.job import Job
from kwiki_kernels.knobs import evaluate
from kwiki_kernels.task import Task, parse_task

DRAWS_EACH = 100
"""Draws for one workload before it is given up: constraints may leave no room between two others."""
MADE_HERE = {"random", "scalar"}
"""Types of inputs that another size can be made for; a captured tensor has the size it has."""


def with_held_out(job: Job, task: Task) -> tuple[Job, Task]:
    """The job with `job.held_out` further workloads, or fewer where there is no room for them, and its task.

    Raises:
        TaskError: a constraint of the task cannot be evaluated.
    """

    def fits(axes: Mapping[str, int]) -> bool:
        space = task.knob_space
        return space is None or all(
            space.valid(candidate.knobs_for(dict(axes)), axes)
            for candidate in job.candidates
            if candidate.knobs_for(dict(axes))
        )

    drawn = draw(task, job.workload_uuids, seed=job.seed, count=job.held_out, fits=fits)
    if not drawn:
        return job, task
    rows = [job.task_files["workloads.jsonl"].rstrip("\n"), *(w.model_dump_json() for w in drawn)]
    files = {**job.task_files, "workloads.jsonl": "\n".join(rows)}
    uuids = (*job.workload_uuids, *(workload.uuid for workload in drawn))
    longer = job.model_copy(update={"task_files": files, "workload_uuids": uuids, "held_out": 0})
    return longer, parse_task(files, {}, origin=f"job {job.id}")


def draw(
    task: Task,
    uuids: Sequence[str],
    *,
    seed: int,
    count: int,
    fits: Callable[[Mapping[str, int]], bool] = lambda _: True,
) -> tuple[Workload, ...]:
    """Up to `count` workloads of sizes that the task does not list, the same ones for the same seed.

    None moves more bytes than the largest of `uuids`; `fits` gets all axis values and may refuse them.

    Raises:
        TaskError: a constraint of the task cannot be evaluated.
    """
    definition = task.definition
    parents = [w for w in task.workloads if _made_here(w) and not w.held_out]
    if not parents:
        return ()
    observed = {axis: {w.axes[axis] for w in parents} for axis in _variable(definition)}
    listed = [definition.axis_values(w.axes) for w in task.workloads]
    most = max(definition.bytes_moved(definition.axis_values(task.workload(uuid).axes)) for uuid in uuids)
    drawn: list[Workload] = []
    for sizes, parent in _between(parents, observed, definition, random.Random(seed), count * DRAWS_EACH):
        if len(drawn) == count:
            break
        axes = definition.axis_values(sizes)
        if axes in listed or definition.bytes_moved(axes) > most:
            continue
        if definition.broken_rule(axes) is None and fits(axes):
            listed.append(axes)
            told = (f"{axis}={sizes[axis]}" for axis, values in observed.items() if len(values) > 1)
            named = {"uuid": " ".join(["held-out", *told]), "axes": sizes, "held_out": True}
            drawn.append(parent.model_copy(update=named))
    return tuple(drawn)


def _between(
    parents: Sequence[Workload],
    observed: Mapping[str, set[int]],
    definition: Definition,
    chance: random.Random,
    draws: int,
) -> Iterator[tuple[dict[str, int], Workload]]:
    """Sizes, and the workload that the scalars are taken from."""
    derived = dict(_derived(definition))
    for _ in range(draws):
        first, second = chance.choice(parents), chance.choice(parents)
        fraction = chance.random()
        sizes = {
            axis: _odd(_mean(first.axes[axis], second.axes[axis], fraction), values)
            for axis, values in observed.items()
        }
        for axis, expression in derived.items():
            sizes[axis] = int(evaluate(expression, definition.axis_values(sizes)))
        yield sizes, first


def _mean(first: int, second: int, fraction: float) -> float:
    """On a logarithmic scale; 0 counts as 1."""
    low, high = math.log(max(first, 1)), math.log(max(second, 1))
    return math.exp(low + fraction * (high - low))


def _odd(size: float, observed: set[int]) -> int:
    """The odd multiple of the greatest common divisor that is nearest to `size`, within what was observed."""
    step = math.gcd(*observed)
    if len(observed) == 1 or step == 0:
        return min(observed)
    least, most = min(observed) // step, max(observed) // step
    multiple = 2 * math.floor(size / step / 2) + 1
    return step * min(max(multiple, least), most)


def _made_here(workload: Workload) -> bool:
    given = (spec.get("type") if isinstance(spec, dict) else "scalar" for spec in workload.inputs.values())
    return MADE_HERE.issuperset(given)


def _variable(definition: Definition) -> list[str]:
    return [name for name, axis in definition.axes.items() if isinstance(axis, VarAxis)]


def _derived(definition: Definition) -> Iterator[tuple[str, ast.expr]]:
    """Axes that a constraint gives by others: `len_cu_seqlens == num_seqs + 1`."""
    for rule in definition.constraints:
        match ast.parse(rule, mode="eval").body:
            case ast.Compare(left=ast.Name(id=axis), ops=[ast.Eq()], comparators=[expression]):
                names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
                if axis in _variable(definition) and names <= definition.axes.keys() - {axis}:
                    yield axis, expression
