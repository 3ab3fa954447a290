"""From the text of a kernel module to callables, one per binary; never touches CUDA."""

from __future__ import annotations

import errno
import functools
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kwiki_kernels.definition import Definition, Workload
from kwiki_kernels.errors import MachineError, StaticReportError, TaskError
from kwiki_kernels.evaluation import Knobs, StaticReport
from kwiki_kernels.job import Candidate
from kwiki_kernels.knobs import KnobSpace
from kwiki_kernels.static_report import launch_smem_bytes, static_reports
from kwiki_kernels.task import Task

LOG_CHARS = 4000
RUN = "run"
"""Names the build of a module that compiles when first called."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class BuildError(Exception):
    """The candidate does not build; the message is what its author needs to read."""


@dataclass(frozen=True)
class Launch:
    """A callable kernel and how it gives its outputs back."""

    function: Callable[..., Any]
    returns_outputs: bool
    """False: destination passing, `function(*inputs, *outputs)`."""


@dataclass(frozen=True)
class Build:
    """One binary, or why there is none, and the workloads it serves."""

    what: str
    workloads: tuple[Workload, ...]
    launch: Launch | None
    log: str = ""
    reports: tuple[StaticReport, ...] = ()


def load_module(text: str, path: Path) -> ModuleType:
    """Execute a module's text from a file: the DSL and tracebacks read sources back from disk.

    Raises:
        BuildError: the text does not run.
        MachineError: the disk is full.
    """
    _write(path, text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        _blame_a_full_disk(error)
        raise BuildError(explain(error, path)) from error
    return module


def build_candidate(
    candidate: Candidate,
    task: Task,
    workloads: tuple[Workload, ...],
    *,
    arch: str,
    path: Path,
    building: Callable[[str], None],
) -> Iterator[Build]:
    """Compile a candidate for every distinct pair of static axes and knobs among the workloads.

    The module's text is put at `path`; `building` is told before each compilation, so that a hang
    can be named.

    Raises:
        BuildError: the module does not load, has no entry, or has knobs that the task does not know.
    """
    _check_knobs(candidate, task.knob_space)
    building("loading the module")
    module = load_module(candidate.source, path)
    if not hasattr(module, "build"):
        yield Build(RUN, workloads, run_entry(module, task.definition))
        return
    for axes, knobs, served in _binaries(module, candidate, task.definition, workloads):
        what = ", ".join(f"{name}={value}" for name, value in {**axes, **knobs}.items()) or "one binary"
        building(what)
        try:
            launch = module.build(dict(axes), dict(knobs))
            if not callable(launch):
                raise TypeError(f"build returned {type(launch).__name__}, not a callable")
            reports, log = _report(launch, arch, axes)
            yield Build(what, served, Launch(launch, returns_outputs=False), log, reports)
        except (Exception, SystemExit) as error:
            _blame_a_full_disk(error)
            yield Build(what, served, None, explain(error, path))


def run_entry(module: ModuleType, definition: Definition) -> Launch:
    """The `run` of a module, in whichever of the two styles its parameters show.

    Raises:
        BuildError: there is no `run`, or its parameters fit neither style.
    """
    run = getattr(module, "run", None)
    if not callable(run):
        raise BuildError("the module defines neither build(axes, knobs) nor run(*inputs, *outputs)")
    inputs, outputs = len(definition.inputs), len(definition.outputs)
    returning, filling = _takes(run, inputs), _takes(run, inputs + outputs)
    if returning and filling:  # parameters with defaults: their names tell
        filling = not definition.outputs.keys().isdisjoint(inspect.signature(run).parameters)
    if not returning and not filling:
        parameters = len(inspect.signature(run).parameters)
        raise BuildError(
            f"run takes {parameters} parameters; {definition.name} needs {inputs} (inputs, returning "
            f"outputs) or {inputs + outputs} (inputs, then outputs to fill)"
        )
    return Launch(run, returns_outputs=False) if filling else Launch(_in_order(run, definition), True)


def _takes(run: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(run).bind(*range(arguments))
    except TypeError:
        return False
    return True


def _in_order(run: Callable[..., Any], definition: Definition) -> Callable[..., Any]:
    """Outputs that a `run` returns by name, as FlashInfer-Trace also has it, in the definition's order."""

    @functools.wraps(run)
    def call(*inputs: Any) -> Any:
        returned = run(*inputs)
        return tuple(map(returned.get, definition.outputs)) if isinstance(returned, dict) else returned

    return call


def explain(error: BaseException, path: Path) -> str:
    """An error as the kernel's author needs it: what happened, then where in the kernel's text."""
    text = ANSI.sub("", str(error)).strip().removeprefix("error:").strip()
    first = type(error).__name__
    if isinstance(error, SystemExit):
        text = f"the kernel module called exit({error.code})"
    elif first not in text.split("\n", 1)[0] and not first.startswith("DSL"):
        text = f"{first}: {text}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
    if frames:
        text += f"\n  at {path.name}:{frames[-1].lineno}: {frames[-1].line}"
    return text.replace(str(path), path.name)[:LOG_CHARS]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _blame_a_full_disk(error)
        raise


def _blame_a_full_disk(error: BaseException) -> None:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        raise MachineError(f"{error.strerror}: make room where temporary files go and run again") from error


def _check_knobs(candidate: Candidate, knob_space: KnobSpace | None) -> None:
    """A typo in a knob's name must not pass for an experiment. Hand-written kernels may have none."""
    if knob_space is None:
        return
    try:
        for knobs in (candidate.knobs, *(rule.knobs for rule in candidate.rules)):
            if knobs:
                knob_space.check(knobs)
    except TaskError as error:
        raise BuildError(str(error)) from error


def _binaries(
    module: ModuleType, candidate: Candidate, definition: Definition, workloads: tuple[Workload, ...]
) -> Iterator[tuple[dict[str, int], Knobs, tuple[Workload, ...]]]:
    static = tuple(getattr(module, "STATIC_AXES", definition.axes))
    if unknown := [name for name in static if name not in definition.axes]:
        raise BuildError(
            f"STATIC_AXES names '{unknown[0]}'; {definition.name} has: {', '.join(definition.axes)}"
        )
    groups: dict[tuple[object, ...], list[Workload]] = {}
    for workload in workloads:
        axes = definition.axis_values(workload.axes)
        knobs = candidate.knobs_for(axes)
        key = (*(axes[name] for name in static), *sorted(knobs.items()))
        groups.setdefault(key, []).append(workload)
    for served in groups.values():
        axes = definition.axis_values(served[0].axes)
        yield {name: axes[name] for name in static}, candidate.knobs_for(axes), tuple(served)


def _report(
    launch: Callable[..., Any], arch: str, axes: dict[str, int]
) -> tuple[tuple[StaticReport, ...], str]:
    binaries = [
        (compiled.__cubin__, str(getattr(compiled, "ir_module", "")))
        for compiled in getattr(launch, "compiled", ())
    ]
    if not binaries or not all(isinstance(cubin, bytes) for cubin, _ in binaries):
        return (), "no static report: launch.compiled holds no cubin"
    try:
        reports = tuple(
            report
            for cubin, host_ir in binaries
            for report in static_reports(cubin, arch, axes, launch_smem_bytes(host_ir))
        )
    except StaticReportError as error:
        return (), f"no static report: {error}"
    return reports, ""
