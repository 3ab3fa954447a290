"""The contract of a task: a folder in FlashInfer-Trace form that says what a kernel must compute.

<task>/definition.json   axes, inputs, outputs, constraints, optionally the reference
<task>/workloads.jsonl   one workload a line: uuid and axis values
<task>/reference.py      `run(*inputs) -> outputs`, used where the definition holds no reference
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
module may define two more: `work(axes, contents)`, a dict with the fields of `roofline.Work`, where
shapes alone do not say how much there is to do; and `candidates(*inputs, dtype)`, the slots and
scores that a `selection` chooses from.

`inputs.py` defines `make(axes, values, layout, spread)`: a dict of those inputs that are not plain
normal numbers. `layout`, a torch.Generator on the CPU, draws what decides how much work there is
(lengths, routing); all timed sets of a workload share it, on every machine. `values`, a generator
on the GPU, draws the rest and differs from set to set. `spread` is 1, or 4 for a probe off the
distribution: scale by it what an operator must stand to see scaled. The `contents` that `work` gets
are this dict and the scalars.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kwiki_kernels.errors import JudgeError
from kwiki_kernels.evaluation import Knobs, KnobValue, Record

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


RecordT = TypeVar("RecordT", bound=Record)


class TaskError(JudgeError):
    """A task folder that does not fulfil the contract; the message names file and field."""


class ConstAxis(Record):
    """An axis with one value for all workloads."""

    type: Literal["const"]
    value: int = Field(ge=0)
    description: str | None = None


class VarAxis(Record):
    """An axis whose value each workload gives."""

    type: Literal["var"]
    description: str | None = None


class TensorSpec(Record):
    """Shape in axis names (None: a scalar) and dtype of an input or output."""

    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None
    optional: bool = False

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPE_BYTES:
            raise ValueError(f"unknown dtype '{dtype}'; known: {', '.join(DTYPE_BYTES)}")
        return dtype


class Definition(Record):
    """What is computed: the Definition of FlashInfer-Trace."""

    name: str
    op_type: str
    axes: dict[str, Annotated[ConstAxis | VarAxis, Field(discriminator="type")]]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    constraints: tuple[str, ...] = ()
    reference: str | None = None
    tags: tuple[str, ...] = ()
    description: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Definition:
        if twice := self.inputs.keys() & self.outputs.keys():
            raise ValueError(f"'{min(twice)}' is both an input and an output")
        for kind, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name, spec in specs.items():
                for axis in spec.shape or ():
                    if axis not in self.axes:
                        raise ValueError(f"{kind}.{name}.shape: there is no axis '{axis}'")
        for name, spec in self.outputs.items():
            if spec.shape is None:
                raise ValueError(f"outputs.{name}.shape: the judge knows only tensors, this is a scalar")
        for rule in self.constraints:
            try:
                ast.parse(rule, mode="eval")
            except SyntaxError as error:
                raise ValueError(f"constraints: '{rule}' is no expression: {error.msg}") from error
        return self

    def axis_values(self, given: Mapping[str, int]) -> dict[str, int]:
        """All axis values of a workload: the constants and what `given` adds."""
        return {
            name: axis.value if isinstance(axis, ConstAxis) else given[name]
            for name, axis in self.axes.items()
        }

    def bytes_moved(self, axes: Mapping[str, int]) -> int:
        """By shapes alone: each input tensor read once, each output written once."""
        return tensor_bytes(self.inputs, axes) + tensor_bytes(self.outputs, axes)


def tensor_bytes(specs: Mapping[str, TensorSpec], axes: Mapping[str, int]) -> int:
    """Bytes of all tensors among inputs or outputs at these axis values."""
    return sum(
        DTYPE_BYTES[spec.dtype] * math.prod(axes[axis] for axis in spec.shape)
        for spec in specs.values()
        if spec.shape is not None
    )


class Workload(BaseModel):
    """One set of axis values to run on. Extra keys of captured traces are kept but not used."""

    model_config = ConfigDict(extra="allow", frozen=True)

    uuid: str
    axes: dict[str, Annotated[int, Field(ge=0)]]
    inputs: dict[str, Any] = Field(default_factory=dict)


class ContestTolerance(Record):
    """A contest's own verdict, reported beside ours: an element fails where it exceeds both bounds."""

    atol: float = Field(gt=0)
    rtol: float = Field(gt=0)
    matched_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the elements that must not fail."""


class Tolerance(Record):
    """How close is right. Without a file, `check` derives everything from the outputs' precision."""

    relative_l2: dict[str, float] = {}
    """Output to the largest ||out - ref|| / ||ref|| against float64, where faithful kernels round inside."""
    matched_ratio: float = Field(default=1.0, gt=0, le=1)
    """Share of the elements that must lie within the bound on single elements."""
    selection: bool = False
    """The one output selects the best candidates: any order, and near ties may go either way."""
    contest: ContestTolerance | None = None


BY_PRECISION = Tolerance()
"""Everything follows from the outputs' precision."""


class KnobSpec(Record):
    """One dimension of the search space: its values in a meaningful order."""

    values: tuple[KnobValue, ...] = Field(min_length=1)
    description: str = ""


class KnobSpace(Record):
    """The typed search space of a task's seed kernel.

    Constraints are arithmetic comparisons over knob names and axis names; a point is valid for a
    workload when all hold.
    """

    knobs: dict[str, KnobSpec]
    default: Knobs
    constraints: tuple[str, ...] = ()

    def check(self, knobs: Mapping[str, KnobValue]) -> None:
        """Refuse unknown knobs and values outside the space, naming them.

        Raises:
            TaskError: a knob or value is unknown, or one is missing.
        """
        for name, value in knobs.items():
            if name not in self.knobs:
                raise TaskError(f"unknown knob '{name}'; this task has: {', '.join(self.knobs)}")
            if value not in self.knobs[name].values:
                allowed = ", ".join(map(str, self.knobs[name].values))
                raise TaskError(f"knob '{name}' cannot be {value!r}; allowed: {allowed}")
        if missing := self.knobs.keys() - knobs.keys():
            raise TaskError(f"knobs without a value: {', '.join(sorted(missing))}")

    def valid(self, knobs: Mapping[str, KnobValue], axes: Mapping[str, int]) -> bool:
        """Whether every constraint holds for these knobs on a workload with these axes."""
        return all(holds(rule, {**axes, **knobs}) for rule in self.constraints)

    def points(self) -> Iterator[Knobs]:
        """Every combination of knob values, in order; constraints are not applied."""
        names = list(self.knobs)
        for values in itertools.product(*(self.knobs[name].values for name in names)):
            yield dict(zip(names, values, strict=True))


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

    def seed_for(self, arch: str) -> str:
        """Text of the seed kernel for an architecture such as `sm_90a`.

        Raises:
            TaskError: the task has no seed for it.
        """
        family = arch.removesuffix("a").removesuffix("f").replace("_", "")
        for key in (family, "any"):
            if key in self.kernels:
                return self.kernels[key]
        have = ", ".join(sorted(self.kernels)) or "none"
        raise TaskError(f"task {self.name} has no seed kernel for {arch}; seeds: {have}")


def load_task(folder: Path) -> Task:
    """Read a task folder.

    Raises:
        TaskError: the folder, a file or a field is missing or malformed.
    """
    if not (folder / "definition.json").is_file():
        raise TaskError(f"{folder} is not a task: it has no definition.json")
    files = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in {".json", ".jsonl", ".py"} and not path.name.startswith("kernel")
    }
    kernels = {
        path.stem.removeprefix("kernel").removeprefix("_") or "any": path.read_text(encoding="utf-8")
        for path in sorted(folder.glob("kernel*.py"))
    }
    return parse_task(files, kernels, origin=str(folder))


def parse_task(files: Mapping[str, str], kernels: Mapping[str, str], *, origin: str) -> Task:
    """Build a Task from file texts, as a job carries them.

    Raises:
        TaskError: as `load_task`; messages name `origin` and the file.
    """
    definition = _parse(Definition, files, "definition.json", origin)
    reference = definition.reference or files.get("reference.py")
    if reference is None:
        raise TaskError(f"{origin}: neither definition.json holds a reference nor is there a reference.py")
    if "workloads.jsonl" not in files:
        raise TaskError(f"{origin}: no workloads.jsonl")
    return Task(
        definition=definition,
        workloads=tuple(_workloads(files["workloads.jsonl"], definition, origin)),
        reference=reference,
        baselines={
            name.removesuffix(".py").replace("baseline_", "baseline:", 1): text
            for name, text in sorted(files.items(), key=lambda item: len(item[0]))
            if name.startswith("baseline") and name.endswith(".py")
        },
        kernels=dict(kernels),
        knob_space=_parse(KnobSpace, files, "knobs.json", origin) if "knobs.json" in files else None,
        tolerance=_tolerance(files, definition, origin),
        files=dict(files),
    )


def holds(rule: str, names: Mapping[str, KnobValue]) -> bool:
    """Whether an arithmetic comparison over `names` is true, e.g. `rows * width <= 1024`.

    A rule that speaks of a name not given (a tensor of a captured workload, say) holds.

    Raises:
        TaskError: the rule is not such a comparison.
    """
    try:
        tree = ast.parse(rule, mode="eval")
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if used - names.keys():
            return True
        return bool(_evaluate(tree.body, names))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError) as error:
        raise TaskError(f"constraint '{rule}' cannot be evaluated: {error}") from error


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def _evaluate(node: ast.expr, names: Mapping[str, KnobValue]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, names), _evaluate(right, names))
        case ast.BoolOp(op=op, values=values):
            combine = all if isinstance(op, ast.And) else any
            return combine(_evaluate(value, names) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, names)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_evaluate(value, names) for value in (left, *comparators)]
            return all(_OPERATORS[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
    raise TypeError(f"{type(node).__name__} is not allowed in a constraint")


def _parse(model: type[RecordT], files: Mapping[str, str], name: str, origin: str) -> RecordT:
    if name not in files:
        raise TaskError(f"{origin}: no {name}")
    try:
        return model.model_validate_json(files[name])
    except ValidationError as error:
        raise TaskError(f"{origin}/{name}: {_first_problem(error)}") from error


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
            workload = Workload.model_validate(row.get("workload", row))
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
        for rule in definition.constraints:
            if _checkable(rule) and not holds(rule, axes):
                raise TaskError(f"{where}: constraint '{rule}' does not hold for {axes}")
        yield workload


def _agrees(definition: Definition, name: str, value: int) -> bool:
    """A workload may repeat a constant axis, but not change it or invent another."""
    axis = definition.axes.get(name)
    return isinstance(axis, VarAxis) or (axis is not None and axis.value == value)


def _checkable(rule: str) -> bool:
    """Constraints may speak of tensor contents (`cu_seqlens[-1].item()`): those are not checked on axes."""
    return not any(
        isinstance(node, ast.Subscript | ast.Call | ast.Attribute) for node in ast.walk(ast.parse(rule))
    )


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "(top level)"
    return f"{field}: {first['msg']}"
