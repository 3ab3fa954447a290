"""The contract of a task: a folder in FlashInfer-Trace form that says what a kernel must compute.

<task>/definition.json   axes, inputs, outputs, constraints, optionally the reference
<task>/workloads.jsonl   one workload a line: uuid and axis values
<task>/reference.py      `run(*inputs) -> outputs`, used where the definition holds no reference; without
                         either the baseline is the reference
<task>/inputs.py         what random numbers cannot stand for, optional
<task>/tolerance.json    how close is right, where the output's precision alone does not say, optional
<task>/baseline*.py      `run(*inputs) -> outputs`: what a candidate must beat
<task>/kernel*.py        seeds: `build(axes, knobs)` or a destination-passing `run(*inputs, *outputs)`
<task>/knobs.json        the typed search space of the seed, optional

A kernel module is one of two things:

`build(axes, knobs) -> launch` compiles from fake tensors for the architecture in `CUTE_DSL_ARCH`,
without torch and without a GPU. `axes` holds the axes named in the module's `STATIC_AXES` (a tuple
of names; default: all axes), those that the binary is specialised for; one binary serves all
workloads that agree in them. `launch(*inputs, *outputs)` runs on torch's current stream and can be
captured in a CUDA graph; `launch.compiled` is a tuple of objects whose `__cubin__` is the binary.

`run(*inputs, *outputs)`, or `run(*inputs) -> outputs`, told apart by the number of parameters:
compiled when first called, so it needs a GPU and has no static report.

Inputs and outputs come in the definition's order; scalars are Python numbers. Baselines and
references are `run(*inputs) -> outputs`, one tensor or a tuple.

The reference is the oracle, in float64: `run` gets inputs upcast to float64 and follows their dtype.
Where that is not enough, its module also defines `exact(*inputs, dtype)`, which gets the inputs as
they are, computes in `dtype` (piece by piece, so that the largest workload fits) and returns it;
`run` is then what FlashInfer-Trace wants, float32 inside and the definition's dtypes outside. The
module may define two more: `work(axes, layout)`, a dict with the fields of `roofline.Work`, where
shapes alone do not say how much there is to do; and `candidates(*inputs, dtype)`, the slots and
scores that a `selection` chooses from.

`inputs.py` makes those inputs that are not plain normal numbers, as a dict, in up to two functions.
`layout(axes, generator)` draws on the CPU what decides how much work there is, such as lengths and
routing; scalars stand among its axes. All timed sets of a workload share it, on every machine, and
`work` gets it and the scalars. `values(axes, generator, spread)` draws on the GPU what differs from
set to set. `spread` is 1, or 4 for a probe off the distribution: scale by it what an operator must
stand to see scaled.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from kwiki_kernels.definition import Definition, VarAxis, Workload
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Record
from kwiki_kernels.knobs import KnobSpace, names_in
from kwiki_kernels.tolerance import BY_PRECISION, Tolerance

CAPTURED_BYTES = 64 << 20
"""Of captured tensors in all: they travel in every job as text."""

RecordT = TypeVar("RecordT", bound=Record)


class Task(Record):
    """A loaded task folder."""

    definition: Definition
    workloads: tuple[Workload, ...]
    reference: str
    """Text of a module with `run(*inputs)`; in float64 it is the oracle."""
    baselines: dict[str, str]
    """`baseline` and `baseline:<name>` to text of a module with `run(*inputs) -> outputs`."""
    kernels: dict[str, str] = {}
    """Architecture family (`sm90`, `sm100`, or `any`) to text of the seed."""
    knob_space: KnobSpace | None = None
    tolerance: Tolerance = BY_PRECISION
    files: dict[str, str]
    """Relative path to text of everything but the kernels: what a job carries."""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def states_work(self) -> bool:
        """Whether the reference's module defines `work`, so that shapes alone do not say what is moved."""
        return "\ndef work(" in self.reference

    def workload(self, uuid: str) -> Workload:
        """The workload with this uuid.

        Raises:
            TaskError: there is none.
        """
        for workload in self.workloads:
            if workload.uuid == uuid:
                return workload
        raise TaskError(f"task {self.name} has no workload '{uuid}'")

    def has_seed_for(self, arch: str) -> bool:
        """Whether `seed_for` finds a kernel for this architecture."""
        return any(key in self.kernels for key in _seed_keys(arch))

    def seed_for(self, arch: str) -> str:
        """Text of the seed kernel for an architecture such as `sm_90a`.

        Raises:
            TaskError: the task has no seed for it.
        """
        for key in _seed_keys(arch):
            if key in self.kernels:
                return self.kernels[key]
        have = ", ".join(sorted(self.kernels)) or "none"
        raise TaskError(
            f"task {self.name} has no seed kernel for {arch} (seeds: {have}): put a kernel.py beside its "
            "definition, or have kernels written from nothing (--policy claude or external)"
        )


def _seed_keys(arch: str) -> tuple[str, str]:
    """The seed of this family comes first, then the one for any."""
    return arch.removesuffix("a").removesuffix("f").replace("_", ""), "any"


def load_task(folder: Path) -> Task:
    """Read a task folder.

    Raises:
        TaskError: the folder, a file or a field is missing or malformed.
    """
    if not (folder / "definition.json").is_file():
        raise TaskError(f"{folder} is not a task: it has no definition.json")
    files = {
        path.name: _text(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in {".json", ".jsonl", ".py"} and not path.name.startswith("kernel")
    }
    kernels = {
        path.stem.removeprefix("kernel").removeprefix("_") or "any": _text(path)
        for path in sorted(folder.glob("kernel*.py"))
    }
    task = parse_task(files, kernels, origin=str(folder))
    return task.model_copy(update={"files": {**files, **_captured(task, folder)}})


def parse_task(files: Mapping[str, str], kernels: Mapping[str, str], *, origin: str) -> Task:
    """Build a Task from file texts, as a job carries them.

    Raises:
        TaskError: as `load_task`; messages name `origin` and the file.
    """
    definition = _parse(Definition, files, "definition.json", origin)
    reference = definition.reference or files.get("reference.py") or files.get("baseline.py")
    if reference is None:
        raise TaskError(f"{origin}: neither definition.json holds a reference nor is there a reference.py")
    if "workloads.jsonl" not in files:
        raise TaskError(f"{origin}: no workloads.jsonl")
    workloads = tuple(_workloads(files["workloads.jsonl"], definition, origin))
    if not workloads:
        raise TaskError(f"{origin}/workloads.jsonl lists no workload")
    return Task(
        definition=definition,
        workloads=workloads,
        reference=reference,
        baselines={
            name.removesuffix(".py").replace("baseline_", "baseline:", 1): text
            for name, text in sorted(files.items(), key=lambda item: len(item[0]))
            if name.startswith("baseline") and name.endswith(".py")
        },
        kernels=dict(kernels),
        knob_space=_knob_space(files, definition, origin),
        tolerance=_tolerance(files, definition, origin),
        files=dict(files),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # a byte order mark is no part of the JSON
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _captured(task: Task, folder: Path) -> dict[str, str]:
    """The safetensors files that workloads name, by those names and in base64, so that a job holds them."""
    found: dict[str, str] = {}
    size = 0
    for workload in task.workloads:
        for spec in workload.captured.values():
            name = spec["path"]
            if name in found:
                continue
            places = (base / name for base in (folder, *folder.resolve().parents))
            path = next((place for place in places if place.is_file()), None)
            if path is None:
                raise TaskError(f"{folder}: workload {workload.uuid} names '{name}', which is not there")
            size += path.stat().st_size
            if size > CAPTURED_BYTES:
                most = f"{CAPTURED_BYTES >> 20} MiB"
                raise TaskError(f"{folder}: captured tensors exceed the {most} that a job carries")
            found[name] = base64.b64encode(path.read_bytes()).decode()
    return found


def _parse(model: type[RecordT], files: Mapping[str, str], name: str, origin: str) -> RecordT:
    if name not in files:
        raise TaskError(f"{origin}: no {name}")
    try:
        return model.model_validate_json(files[name])
    except ValidationError as error:
        raise TaskError(f"{origin}/{name}: {_first_problem(error)}") from error


def _knob_space(files: Mapping[str, str], definition: Definition, origin: str) -> KnobSpace | None:
    if "knobs.json" not in files:
        return None
    space = _parse(KnobSpace, files, "knobs.json", origin)
    for rule in space.constraints:
        if strange := names_in(rule) - space.knobs.keys() - definition.axes.keys():
            raise TaskError(f"{origin}/knobs.json: constraint '{rule}': no knob or axis is '{min(strange)}'")
    return space


def _tolerance(files: Mapping[str, str], definition: Definition, origin: str) -> Tolerance:
    if "tolerance.json" not in files:
        return BY_PRECISION
    tolerance = _parse(Tolerance, files, "tolerance.json", origin)
    if unknown := tolerance.relative_l2.keys() - definition.outputs.keys():
        raise TaskError(f"{origin}/tolerance.json: relative_l2: there is no output '{min(unknown)}'")
    return tolerance


def _workloads(text: str, definition: Definition, origin: str) -> Iterator[Workload]:
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{origin}/workloads.jsonl:{number}"
        try:
            row = json.loads(line)
            workload = Workload.model_validate(row.get("workload", row) if isinstance(row, dict) else row)
        except ValidationError as error:
            raise TaskError(f"{where}: {_first_problem(error)}") from error
        except (ValueError, TypeError) as error:
            raise TaskError(f"{where}: {error}") from error
        if workload.uuid in seen:
            raise TaskError(f"{where}: uuid '{workload.uuid}' appears twice")
        seen.add(workload.uuid)
        if missing := [
            name for name, axis in definition.axes.items()
            if isinstance(axis, VarAxis) and name not in workload.axes
        ]:  # fmt: skip
            raise TaskError(f"{where}: axes lacks '{missing[0]}'")
        if strange := [name for name, value in workload.axes.items() if not _agrees(definition, name, value)]:
            has = ", ".join(definition.axes)
            raise TaskError(f"{where}: axes.{strange[0]} contradicts the definition, whose axes are {has}")
        axes = definition.axis_values(workload.axes)
        if rule := definition.broken_rule(axes):
            raise TaskError(f"{where}: constraint '{rule}' does not hold for {axes}")
        if problem := definition.unmakeable(workload):
            raise TaskError(f"{where}: {problem}")
        yield workload


def _agrees(definition: Definition, name: str, value: int) -> bool:
    """A workload may repeat a constant axis, but not change it or invent another."""
    axis = definition.axes.get(name)
    return isinstance(axis, VarAxis) or (axis is not None and axis.value == value)


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return f"{field}: {what}" if field else what
