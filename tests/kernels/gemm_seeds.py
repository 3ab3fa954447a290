"""The GEMM seeds as modules, with a knob space to draw points from."""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType
from typing import Any

from kwiki_kernels.knobs import KnobSpace
from kwiki_kernels.task import Task, load_task

from tests.kernels.shrunk_tasks import TASKS


def seed_task(name: str) -> tuple[Task, KnobSpace]:
    """A shipped task and the knob space of its seed."""
    task = load_task(TASKS / name)
    assert task.knob_space is not None
    return task, task.knob_space


@functools.cache
def load_seed(name: str, family: str = "sm90") -> ModuleType:
    """The seed `kernel_<family>.py` of a task."""
    path = TASKS / name / f"kernel_{family}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_{family}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def name_of(changes: dict[str, Any]) -> str:
    """Changes to the default knobs as a test's id."""
    return ",".join(f"{name}={value}" for name, value in changes.items()) or "default"
