"""Tasks and verdicts in the files of FlashInfer-Trace, for the tools that read them.

<root>/definitions/<op>/<definition>.json          the task, its reference inside
<root>/workloads/<op>/<definition>.jsonl           its workloads, one Trace without a solution a line
<root>/solutions/<author>/<op>/<definition>/*.json candidates
<root>/traces/<op>/<definition>.jsonl              verdicts, one Trace for each candidate and workload
<root>/...                                         captured tensors, where the workloads say

Two of our words are unknown there. REJECTED becomes RUNTIME_ERROR with the word in the log, and
UNMEASURED leaves no trace, since nothing ran. Latencies are device times. The format knows no
`build(axes, knobs)`, so a candidate with one gets a second file that builds on the first call of
each shape.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kwiki_kernels.definition import ConstAxis, Definition, Workload
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Evaluation, Status, WorkloadResult
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

AUTHOR = "kernel-wiki"
ENTRY = """\
from . import kernel

KNOBS = {knobs}
RULES = {rules}
_launches = {{}}


def run({parameters}):
    axes = {{{axes}}}
    knobs = next((k for bounds, k in RULES if all(axes[n] <= b for n, b in bounds.items())), KNOBS)
    static = {{name: axes[name] for name in getattr(kernel, "STATIC_AXES", axes)}}
    key = (*static.values(), *knobs.items())
    if key not in _launches:
        _launches[key] = kernel.build(static, dict(knobs))
    _launches[key]({parameters})
"""


def export(
    root: Path,
    task: Task,
    candidates: Iterable[Candidate] = (),
    traces: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Write a task, and what is known about candidates for it, below `root`.

    Args:
        root: created where missing; files of the same names are replaced.
        task: its reference must define `run` in plain Python.
        candidates: what the traces speak of.
        traces: rows that `trace_rows` made of verdicts on this task.

    Raises:
        TaskError: the task's workloads name captured tensors outside of the data set.
        OSError: a file cannot be written.
    """
    name, op = task.name, task.definition.op_type
    _write(root / "definitions" / op / f"{name}.json", [definition_row(task)], indent=2)
    _write(root / "workloads" / op / f"{name}.jsonl", [workload_row(task, w) for w in task.workloads])
    for candidate in candidates:
        path = root / "solutions" / AUTHOR / op / name / f"{candidate.id}.json"
        _write(path, [solution_row(task, candidate)], indent=2)
    for file, text in task.files.items():
        if file.endswith(".safetensors"):
            _write_captured(root, file, text)
    if rows := list(traces):
        _write(root / "traces" / op / f"{name}.jsonl", rows)


def definition_row(task: Task) -> dict[str, Any]:
    """The Definition, its reference filled in from the task's folder."""
    row = task.definition.model_dump(mode="json", exclude_none=True)
    for kind in ("inputs", "outputs"):
        for spec in row[kind].values():
            spec.setdefault("shape", None)  # a scalar says so
            if not spec["optional"]:
                del spec["optional"]
    return row | {"reference": task.reference}


def workload_row(task: Task, workload: Workload) -> dict[str, Any]:
    """A Trace that holds a workload alone; inputs that the judge makes are `random`."""
    return {
        "definition": task.name,
        "solution": None,
        "workload": _workload(task.definition, workload),
        "evaluation": None,
    }


def solution_row(task: Task, candidate: Candidate) -> dict[str, Any]:
    """A candidate as a Solution in destination-passing style."""
    sources = [{"path": "kernel.py", "content": candidate.source}]
    built = "\ndef build(" in candidate.source
    if built:
        sources.append({"path": "entry.py", "content": _entry(task.definition, candidate)})
    return {
        "name": candidate.id,
        "definition": task.name,
        "author": AUTHOR,
        "description": candidate.intent,
        "spec": {
            "language": "python",
            "target_hardware": ["cuda"],
            "entry_point": "entry.py::run" if built else "kernel.py::run",
            "dependencies": ["nvidia-cutlass-dsl"],
            "destination_passing_style": True,
        },
        "sources": sources,
    }


def trace_rows(
    task: Task, evaluation: Evaluation, baseline_us: Mapping[str, float]
) -> Iterable[dict[str, Any]]:
    """One Trace for each workload of the task that the candidate ran on, or failed on.

    `baseline_us` maps workloads to the latency that speedups are read against, us; 0 where unknown.
    """
    for result in evaluation.results:
        if result.status is not Status.UNMEASURED and not result.held_out:
            yield {
                "definition": task.name,
                "solution": evaluation.candidate_id,
                "workload": _workload(task.definition, task.workload(result.uuid)),
                "evaluation": _evaluation(evaluation, result, baseline_us.get(result.uuid, 0.0)),
            }


def _entry(definition: Definition, candidate: Candidate) -> str:
    """Text of a module whose `run` reads the axes off the inputs' shapes."""
    axes: dict[str, str] = {}
    for tensor, spec in definition.inputs.items():
        for dim, axis in enumerate(spec.shape or ()):
            axes.setdefault(axis, f"{tensor}.shape[{dim}]")
    axes |= {name: str(axis.value) for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)}
    return ENTRY.format(
        knobs=candidate.knobs,
        rules=[(rule.axes, rule.knobs) for rule in candidate.rules],
        parameters=", ".join([*definition.inputs, *definition.outputs]),
        axes=", ".join(f'"{name}": {value}' for name, value in axes.items()),
    )


def _workload(definition: Definition, workload: Workload) -> dict[str, Any]:
    variable = {name: value for name, value in workload.axes.items() if definition.axes[name].type == "var"}
    scalars = (workload.model_extra or {}).get("scalars", {})
    inputs: dict[str, Any] = {}
    for name, spec in definition.inputs.items():
        given = {"type": "scalar", "value": scalars.get(name)} if spec.shape is None else {"type": "random"}
        inputs[name] = workload.inputs.get(name, given)
    return {"uuid": workload.uuid, "axes": variable, "inputs": inputs}


def _evaluation(evaluation: Evaluation, result: WorkloadResult, baseline_us: float) -> dict[str, Any]:
    here, status = evaluation.environment, result.status
    row: dict[str, Any] = {
        "status": status.value,
        "environment": {"hardware": here.gpu or evaluation.arch, "libs": here.versions},
        "timestamp": evaluation.created,
        "log": result.log,
    }
    if status is Status.REJECTED:
        row |= {"status": Status.RUNTIME_ERROR.value, "log": f"{status}: {result.log}"}
    if status in {Status.PASSED, Status.INCORRECT_NUMERICAL}:
        row["correctness"] = _correctness(result)
    if status is Status.PASSED and result.timing is not None:
        latency_us = result.timing.median_us
        row["performance"] = {
            "latency_ms": latency_us / 1e3,
            "reference_latency_ms": baseline_us / 1e3,
            "speedup_factor": baseline_us / latency_us,
        }
    return row


def _correctness(result: WorkloadResult) -> dict[str, Any]:
    """Outputs with NaN or infinities have no error to state: it counts as infinite, which JSON spells out."""
    if result.error is None:
        return {"max_relative_error": "Infinity", "max_absolute_error": "Infinity", "extra": {}}
    extra = {"relative_l2": result.error.relative_l2, "contest_passed": result.contest_passed}
    return {
        "max_relative_error": result.error.max_rel,
        "max_absolute_error": result.error.max_abs,
        "extra": extra,
    }


def _write_captured(root: Path, name: str, text: str) -> None:
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise TaskError(f"captured file '{name}' lies outside of the data set: give it a path within")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(text))


def _write(path: Path, rows: Iterable[Mapping[str, Any]], indent: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, indent=indent) + "\n" for row in rows), encoding="utf-8")
