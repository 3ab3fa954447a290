"""A task on which handing an input back passes would measure nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.build import load_module
from kwiki_kernels.evaluation import Status
from kwiki_kernels.inputs import as_list

from tests.kernels.shrunk_tasks import shrunk
from tests.kernels.test_tasks import FOLDERS, make_trial


def copies(name: str) -> list[tuple[int, int]]:
    """Pairs of an output and an input of the task that have the same shape."""
    definition = shrunk(name).definition
    return [
        (o, i)
        for o, output in enumerate(definition.outputs.values())
        for i, given in enumerate(definition.inputs.values())
        if given.shape is not None and given.shape == output.shape
    ]


@pytest.mark.parametrize(
    ("name", "output", "given"), [(name, *pair) for name in FOLDERS for pair in copies(name)]
)
def test_an_input_handed_back_fails(name: str, output: int, given: int, tmp_path: Path) -> None:
    task = shrunk(name)
    baseline = load_module(task.baselines["baseline"], tmp_path / "baseline.py").run

    def kernel(*inputs: Any) -> list[torch.Tensor]:
        outputs = as_list(baseline(*inputs))
        outputs[output] = inputs[given].to(outputs[output].dtype)
        return outputs

    assert make_trial(task, kernel, tmp_path).check().status is Status.INCORRECT_NUMERICAL
