"""A small task, row normalisation in bfloat16, and jobs on it."""

from __future__ import annotations

import json
from typing import Any

from kwiki_kernels.job import Candidate, Defences, Job, Protocol

DEFINITION = {
    "name": "normalise_rows",
    "op_type": "rmsnorm",
    "axes": {"rows": {"type": "var"}, "width": {"type": "var"}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["rows", "width"], "dtype": "bfloat16"}},
}
REFERENCE = """
import torch

def run(x, eps):
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
"""
BASELINE = """
import torch

def run(x, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)).to(x.dtype)
"""
HONEST = """
import torch

def run(x, eps, y):
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps))
"""
KNOBS = {"knobs": {"width_bits": {"values": [32, 64]}}, "default": {"width_bits": 32}}
SHAPES = {"small": (4, 64), "wide": (2, 4096)}


def task_files(*, shapes: dict[str, tuple[int, int]] = SHAPES, **changed: str) -> dict[str, str]:
    """The files of the task; keyword arguments replace whole files, `knobs` for knobs.json and so on."""
    workloads = [
        {
            "uuid": uuid,
            "axes": {"rows": rows, "width": width},
            "inputs": {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}},
        }
        for uuid, (rows, width) in shapes.items()
    ]
    return {
        "definition.json": json.dumps(DEFINITION),
        "workloads.jsonl": "\n".join(map(json.dumps, workloads)),
        "reference.py": REFERENCE,
        "baseline.py": BASELINE,
        "knobs.json": json.dumps(KNOBS),
    } | changed


def make_job(*sources: str, **fields: Any) -> Job:
    """A job on the small task with candidates c0, c1, ... of these sources."""
    defaults: dict[str, Any] = {
        "id": "job",
        "task_files": task_files(),
        "workload_uuids": tuple(SHAPES),
        "arch": "sm_90a",
        "candidates": tuple(Candidate(id=f"c{n}", source=source) for n, source in enumerate(sources)),
        "baselines": (),
        "seed": 7,
        "protocol": Protocol(build_timeout_s=30, judge_timeout_s=60),
        # What the keeper and the checks do by themselves, where text and isolation stop nothing.
        "defences": Defences(audit=False, kernel_names=False, each_call=False, isolation=()),
        "kernel_wiki_version": "0.1.0",
    }
    return Job(**{**defaults, **fields})
