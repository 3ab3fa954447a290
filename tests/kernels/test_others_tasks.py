"""Task folders as others write them: two styles, judged unchanged from the command line's own loader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Status
from kwiki_kernels.job import Candidate
from kwiki_kernels.judge import run_job
from kwiki_kernels.task import Task, load_task
from kwiki_kernels.terms import load_reference
from kwiki_kernels.trace import export
from safetensors.torch import save_file

from tests.kernels.judge_samples import make_job

ROWS = 7

# Outputs by name, float32 inside, constants with defaults, a constraint in Python, keys of their own.
GATHERED = {
    "name": "gathered_sum_h8",
    "op_type": "gather",
    "version": "1.2",
    "axes": {
        "num_rows": {"type": "var", "parent": "cache"},
        "cache_len": {"type": "var"},
        "width": {"type": "const", "value": 8},
        "picks": {"type": "const", "value": 3},
    },
    "constraints": ["indices.max().item() < cache_len", "num_rows in (1, 7, 9)", "-1 < num_rows ** 2"],
    "inputs": {
        "cache": {"shape": ["cache_len", "width"], "dtype": "bfloat16"},
        "indices": {"shape": ["num_rows", "picks"], "dtype": "int32"},
        "weights": {"shape": ["num_rows", "picks"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "total": {"shape": ["num_rows", "width"], "dtype": "bfloat16"},
        "largest": {"shape": ["num_rows"], "dtype": "float32"},
    },
    "reference": """
import torch

@torch.no_grad()
def run(cache, indices, weights, scale=1.0, eps=0.0):
    assert cache.dtype == torch.bfloat16
    picked = cache.to(torch.float32)[indices.long()]
    total = scale * (weights.unsqueeze(-1) * picked).sum(1)
    return {"largest": total.amax(-1), "total": total.to(torch.bfloat16)}
""",
}
GATHER_KERNEL = """
import torch

def run(cache, indices, weights, scale, total, largest):
    sums = scale * (weights[..., None] * cache.float()[indices.long()]).sum(1)
    total.copy_(sums)
    largest.copy_(sums.amax(-1))
"""

# No reference but the baseline, rows that are whole Traces, no inputs named.
PLAIN = {
    "name": "swish",
    "op_type": "activation",
    "axes": {"n": {"type": "var"}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float16"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float16"}},
}
PLAIN_BASELINE = """
import torch.nn.functional as F

def run(x, *, inplace=False):
    return F.silu(x)
"""
PLAIN_KERNEL = "def run(x, out):\n    out.copy_(x.float() * x.float().sigmoid())\n"


def gathered(folder: Path, **tensors: torch.Tensor) -> Path:
    """A request with captured tensors, in the root of the data set that they belong to."""
    (folder / "blob").mkdir()
    captured = {
        "indices": torch.arange(3 * ROWS, dtype=torch.int32).reshape(ROWS, 3),
        "weights": torch.linspace(0.1, 2, 3 * ROWS).reshape(ROWS, 3),
    }
    save_file(captured | tensors, folder / "blob" / "w0.safetensors")
    inputs: dict[str, Any] = {
        name: {"type": "safetensors", "path": "./blob/w0.safetensors", "tensor_key": name}
        for name in ("indices", "weights")
    }
    inputs |= {"cache": {"type": "random"}, "scale": {"type": "scalar", "value": 0.5}}
    workload = {"uuid": "w0", "axes": {"num_rows": ROWS, "cache_len": 40}, "inputs": inputs}
    request = folder / "request"
    request.mkdir()
    (request / "definition.json").write_text(json.dumps(GATHERED))
    (request / "workloads.jsonl").write_text(json.dumps(workload))
    return request


def plain(folder: Path) -> Path:
    rows = [
        {"definition": "swish", "solution": None, "evaluation": None,
         "workload": {"uuid": f"n{n}", "axes": {"n": n}, "inputs": {"x": {"type": "random"}}}}
        for n in (1, 1000)
    ]  # fmt: skip
    (folder / "definition.json").write_text(json.dumps(PLAIN))
    (folder / "workloads.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    (folder / "baseline.py").write_text(PLAIN_BASELINE)
    (folder / "README.md").write_text("Make swish fast.")
    return folder


def check(task: Task, source: str) -> tuple[Status, str]:
    job = make_job(
        task_files=task.files, workload_uuids=tuple(w.uuid for w in task.workloads), stage="check",
        candidates=(Candidate(id="c", source=source),),
    )  # fmt: skip
    (verdict,) = run_job(job)
    return verdict.status, verdict.log


@pytest.mark.parametrize(("make", "kernel"), [(gathered, GATHER_KERNEL), (plain, PLAIN_KERNEL)])
def test_a_right_kernel_is_right_and_a_wrong_one_is_wrong(
    make: Callable[[Path], Path], kernel: str, tmp_path: Path
) -> None:
    task = load_task(make(tmp_path))
    assert check(task, kernel) == (Status.UNMEASURED, "right on the CPU; nothing was measured")
    status, log = check(task, kernel.replace("float()", "float().mul(1.05)"))
    assert status is Status.INCORRECT_NUMERICAL, log


def test_captured_tensors_are_as_captured_but_for_the_probe(tmp_path: Path) -> None:
    task = load_task(gathered(tmp_path))
    _, terms = load_reference(task, tmp_path)
    (workload,) = task.workloads
    plain_set, probe = (terms.inputs(task.definition, workload, 0, "cpu", spread) for spread in (1.0, 4.0))
    assert plain_set[1].flatten().tolist() == list(range(3 * ROWS))
    assert torch.equal(plain_set[1], probe[1])
    assert torch.equal(plain_set[2], 2 * probe[2])


def test_integers_leave_open_what_is_read_so_no_floor_rests_on_it(tmp_path: Path) -> None:
    task = load_task(gathered(tmp_path))
    _, terms = load_reference(task, tmp_path)
    work = terms.work(task.definition, task.workloads[0])
    assert (work.bytes_read, work.bytes_written) == (0, ROWS * (8 * 2 + 4))


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        (
            {"weights": torch.ones(ROWS, 4)},
            r"captured 'weights' as float32 \[7, 4\], must be float32 \[7, 3\]",
        ),
        ({"indices": torch.ones(ROWS, 3)}, r"captured 'indices' as float32 \[7, 3\], must be int32"),
    ],
)
def test_captured_tensors_of_another_form_are_the_tasks_fault(
    tensors: dict[str, torch.Tensor], problem: str, tmp_path: Path
) -> None:
    task = load_task(gathered(tmp_path, **tensors))
    _, terms = load_reference(task, tmp_path)
    with pytest.raises(TaskError, match=problem):
        terms.inputs(task.definition, task.workloads[0], 0, "cpu", 1.0)


def test_a_captured_file_that_is_missing_is_named(tmp_path: Path) -> None:
    request = gathered(tmp_path)
    (tmp_path / "blob" / "w0.safetensors").unlink()
    with pytest.raises(TaskError, match=r"workload w0 names '\./blob/w0\.safetensors', which is not there"):
        load_task(request)


def test_a_captured_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    request = gathered(tmp_path)
    (tmp_path / "blob" / "w0.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(TaskError, match=r"'\./blob/w0\.safetensors' is no safetensors file"):
        load_reference(load_task(request), tmp_path)


def test_more_captured_tensors_than_a_job_carries_are_refused(tmp_path: Path) -> None:
    request = gathered(tmp_path, cache=torch.zeros(17 << 20))
    with pytest.raises(TaskError, match="captured tensors exceed the 64 MiB that a job carries"):
        load_task(request)


def test_captured_tensors_are_exported_where_the_workloads_name_them(tmp_path: Path) -> None:
    task = load_task(gathered(tmp_path))
    export(tmp_path / "set", task)
    written = tmp_path / "set" / "blob" / "w0.safetensors"
    assert written.read_bytes() == (tmp_path / "blob" / "w0.safetensors").read_bytes()
    away = task.model_copy(update={"files": {"../x.safetensors": ""}})
    with pytest.raises(TaskError, match=r"captured file '\.\./x\.safetensors' lies outside of the data set"):
        export(tmp_path / "set", away)
    assert not (tmp_path / "x.safetensors").exists()
