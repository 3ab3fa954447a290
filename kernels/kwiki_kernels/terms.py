"""What a task's own code says beyond the outputs it expects: contents, amount of work, choices."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from kwiki_kernels.build import BuildError, load_module, run_entry
from kwiki_kernels.definition import Definition, Workload, tensor_bytes
from kwiki_kernels.errors import TaskError
from kwiki_kernels.inputs import PLAIN, Contents, Inputs, make_inputs, make_layout
from kwiki_kernels.roofline import Work
from kwiki_kernels.task import Task
from kwiki_kernels.tolerance import BY_PRECISION, Tolerance


@dataclass(frozen=True)
class Terms:
    """The terms on which kernels of a task are judged."""

    tolerance: Tolerance = BY_PRECISION
    contents: Contents = PLAIN
    work_of: Callable[..., dict[str, Any]] | None = None
    candidates: Callable[..., tuple[torch.Tensor, torch.Tensor]] | None = None
    """`candidates(*inputs, dtype) -> slots, scores`: what a selection chooses from."""

    def inputs(
        self, definition: Definition, workload: Workload, seed: int, device: str, spread: float
    ) -> Inputs:
        """Fresh inputs, as `make_inputs`."""
        return make_inputs(definition, workload, seed, device, spread=spread, contents=self.contents)

    def work(self, definition: Definition, workload: Workload) -> Work:
        """What a timed call must do.

        Without a `work` of the task's own each tensor moves once. Where integers may say which parts are
        read, only the outputs count: a bound that is too high would refuse honest kernels.

        Raises:
            TaskError: the task's `work` fails or returns something else.
        """
        axes = definition.axis_values(workload.axes)
        if self.work_of is None:
            read, written = (tensor_bytes(specs, axes) for specs in (definition.inputs, definition.outputs))
            return Work(bytes_read=0 if _picks(definition) else read, bytes_written=written)
        layout = make_layout(definition, workload, self.contents)
        try:
            return Work.model_validate(self.work_of(axes, layout))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise TaskError(
                f"work() of {definition.name} returns a wrong '{field}': {first['msg']}"
            ) from error
        except Exception as error:
            message = f"work() of {definition.name} fails: {type(error).__name__}: {error}"
            raise TaskError(message) from error


def _picks(definition: Definition) -> bool:
    tensors = (spec for spec in definition.inputs.values() if spec.shape is not None)
    return any("int" in spec.dtype for spec in tensors)


STATES_NONE = Terms()
"""Right follows from precision, work from shapes, and all inputs are plain random numbers."""


def load_reference(task: Task, folder: Path) -> tuple[Callable[..., Any], Terms]:
    """A task's oracle, `exact` or else `run`, and its terms; the texts are put into `folder` and executed.

    Raises:
        TaskError: one of the texts cannot be used.
    """
    try:
        module = load_module(task.reference, folder / "reference.py")
        run = run_entry(module, task.definition).function
    except BuildError as error:
        raise TaskError(f"{task.name}: the reference cannot be used: {error}") from error
    candidates = getattr(module, "candidates", None)
    if task.tolerance.selection and candidates is None:
        raise TaskError(f"{task.name}: a selection needs candidates(*inputs, dtype) beside its reference")
    return getattr(module, "exact", run), Terms(
        tolerance=task.tolerance,
        contents=_contents(task, folder),
        work_of=getattr(module, "work", None),
        candidates=candidates,
    )


def _contents(task: Task, folder: Path) -> Contents:
    captured = {
        name: _tensors(task, name, text) for name, text in task.files.items() if name.endswith(".safetensors")
    }
    if "inputs.py" not in task.files:
        return Contents(captured=captured)
    try:
        module = load_module(task.files["inputs.py"], folder / "task_inputs.py")
    except BuildError as error:
        raise TaskError(f"{task.name}: inputs.py cannot be used: {error}") from error
    layout, values = getattr(module, "layout", None), getattr(module, "values", None)
    if layout is None and values is None:
        raise TaskError(f"{task.name}: inputs.py defines neither layout(...) nor values(...)")
    return Contents(layout, values, captured)


def _tensors(task: Task, name: str, text: str) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load
    except ImportError as error:
        raise TaskError(
            f"{task.name} has captured tensors: install safetensors where it is judged"
        ) from error
    try:
        return dict(load(base64.b64decode(text)))
    except Exception as error:
        raise TaskError(f"{task.name}: '{name}' is no safetensors file: {error}") from error
