"""The test that goes with an exported kernel: the shapes it was judged on, against the task's reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kwiki_kernels.device import ARCHS
from kwiki_kernels.task import Task

from kwiki_agent.contract import AgentError
from kwiki_agent.export.kernel_file import entry_name
from kwiki_agent.export.literal import literal

TEST = '''\
"""Holds {module}.py to its float64 reference. With a GPU for {arch}: pytest test_{module}.py"""

import pytest
import torch

{import_inputs}import reference
from {module} import {module}

DEVICE = "cuda"
ARCH = {capability}
INPUTS = {inputs}
"""Name to dtype and axes; a scalar has none."""
OUTPUTS = {outputs}
"""Name to dtype and largest relative L2 error against float64; None: equal."""
WORKLOADS = {workloads}
"""Name to axes and scalars."""


def make_inputs(axes, scalars, seed):
    """Normal numbers, and what the task makes itself."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    made = dict(scalars)
{made}    for name, (dtype, shape) in INPUTS.items():
        if name not in made:
            values = torch.randn([axes[axis] for axis in shape], device=DEVICE, generator=generator)
            if "float8" in dtype:
                values = values.clamp(-2, 2)
            made[name] = values.to(getattr(torch, dtype))
    return [made[name].to(DEVICE) if isinstance(made[name], torch.Tensor) else made[name] for name in INPUTS]


def expected_outputs(inputs):
    if hasattr(reference, "exact"):
        found = reference.exact(*inputs, dtype=torch.float64)
    else:
        is_float = [isinstance(x, torch.Tensor) and x.is_floating_point() for x in inputs]
        found = reference.run(*[x.double() if wide else x for x, wide in zip(inputs, is_float, strict=True)])
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != ARCH,
    reason=f"needs a GPU of compute capability {{ARCH}}",
)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_it_agrees_with_the_reference(workload):
    inputs = make_inputs(*WORKLOADS[workload], seed=0)
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    outputs = {module}(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    for x, y in zip(inputs, before, strict=True):
        assert not isinstance(x, torch.Tensor) or torch.equal(x.view(torch.uint8), y.view(torch.uint8))
    for (name, (dtype, bound)), output, expected in zip(
        OUTPUTS.items(), outputs, expected_outputs(inputs), strict=True
    ):
        assert output.dtype == getattr(torch, dtype), name
        assert output.shape == expected.shape, name
        if bound is None:
            assert torch.equal(output, expected.to(output.dtype)), name
        else:
            error = (output.double() - expected.double()).norm() / expected.double().norm()
            assert error <= bound, f"{{name}}: relative L2 error {{error:.3g}}, at most {{bound:.3g}}"
'''


def test_file(task: Task, arch: str, uuids: Iterable[str]) -> str | None:
    """The test's text; None where the task's answer is a choice, which only the judge can weigh.

    It stands beside the kernel's module, `reference.py`, and the task's `inputs.py` where there is one.

    Raises:
        AgentError: the workloads are captured tensors.
    """
    from kwiki_kernels.check import relative_l2_bounds  # imports torch

    if task.tolerance.selection:
        return None
    definition = task.definition
    workloads = {}
    for uuid in uuids:
        workload = task.workload(uuid)
        if workload.captured:
            raise AgentError(f"workload {uuid} is a captured tensor: a test of its own cannot hold it")
        scalars = {n: workload.scalar(n) for n, spec in definition.inputs.items() if spec.shape is None}
        workloads[uuid] = (definition.axis_values(workload.axes), scalars)
    contents = task.files.get("inputs.py", "")
    made = ""
    if "def layout(" in contents:
        made += "    made |= contents.layout({**axes, **scalars}, torch.Generator().manual_seed(seed))\n"
    if "def values(" in contents:
        made += "    made |= contents.values(axes, generator, 1.0)\n"
    bounds = relative_l2_bounds(definition, task.tolerance)
    return TEST.format(
        module=entry_name(definition),
        arch=arch,
        import_inputs="import inputs as contents\n" if made else "",
        capability=ARCHS[arch],
        inputs=_table({name: (spec.dtype, spec.shape or ()) for name, spec in definition.inputs.items()}),
        outputs=_table({name: (spec.dtype, bounds[name]) for name, spec in definition.outputs.items()}),
        workloads=_table(workloads),
        made=made,
    )


def _table(rows: Mapping[str, object]) -> str:
    """A dict, one row a line however short."""
    lines = (
        f"    {literal(name)}: {literal(row, indent=4, before=len(name) + 4)},\n"
        for name, row in rows.items()
    )
    return "{\n" + "".join(lines) + "}"
