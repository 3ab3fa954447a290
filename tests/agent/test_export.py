"""An exported kernel needs neither run nor project, dispatches by shape, and says where it is from."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from kwiki_agent.contract import AgentError
from kwiki_agent.export.kernel_file import fewest_rules, kernel_file
from kwiki_agent.export.write import export_kernel
from kwiki_agent.graph import drive
from kwiki_agent.runs import RunFolder
from kwiki_agent.start import new_run
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.definition import Definition
from kwiki_kernels.evaluation import Knobs
from kwiki_kernels.job import Candidate, Rule
from kwiki_kernels.task import Task, load_task

from tests.agent.toy import MakeLoop

ADDS = "def build(axes, knobs):\n    return lambda x, y: y.copy_(x + knobs['width'])\n"


def candidate(source: str, *, knobs: Knobs | None = None, rules: tuple[Rule, ...] = ()) -> Candidate:
    return Candidate(id="c0001", source=source, knobs=knobs or {"width": 1}, rules=rules)


def up_to(n: int, width: int) -> Rule:
    return Rule(axes={"n": n}, knobs={"width": width})


def load(text: str, folder: Path) -> ModuleType:
    path = folder / "exported.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def toy(task_dir: Path) -> Definition:
    return load_task(task_dir).definition


def test_the_dispatch_takes_the_knobs_of_the_first_rule_that_fits(toy: Definition, tmp_path: Path) -> None:
    rules = (up_to(1, 2), up_to(64, 4))
    module = load(kernel_file(candidate(ADDS, rules=rules), toy, "From a run."), tmp_path)
    assert [float(module.toy(torch.zeros(n))[0]) for n in (1, 2, 64, 65)] == [2, 4, 4, 1]
    assert len(module._BUILT) == 4


@pytest.mark.parametrize(
    "source",
    ["def run(x):\n    return x + 1\n", "def run(x, y):\n    y.copy_(x + 1)\n", ADDS],
    ids=["returning", "filling", "built"],
)
def test_every_form_of_kernel_becomes_a_function_of_its_inputs(
    toy: Definition, tmp_path: Path, source: str
) -> None:
    module = load(kernel_file(candidate(source), toy, "From a run."), tmp_path)
    assert torch.equal(module.toy(torch.zeros(3)), torch.ones(3))


def test_rules_that_say_nothing_more_are_left_out() -> None:
    rules = (up_to(1, 2), up_to(8, 2), up_to(64, 4), up_to(128, 1))
    assert fewest_rules(candidate(ADDS, rules=rules)) == (up_to(8, 2), up_to(64, 4))
    apart = (
        Rule(axes={"n": 8, "m": 1}, knobs={"width": 2}), Rule(axes={"n": 1, "m": 8}, knobs={"width": 2}),
    )  # fmt: skip
    assert fewest_rules(candidate(ADDS, rules=apart)) == apart


def test_what_cannot_stand_alone_is_refused(toy: Definition) -> None:
    with pytest.raises(AgentError, match="a function _built of its own"):
        kernel_file(candidate(ADDS + "\n\ndef _built():\n    pass\n"), toy, "From a run.")
    more = toy.model_dump() | {"axes": {"n": {"type": "var"}, "m": {"type": "var"}}}
    with pytest.raises(AgentError, match="axis 'm' of toy is in no input's shape"):
        kernel_file(candidate(ADDS), Definition.model_validate(more), "From a run.")


@pytest.fixture
def tuned(tmp_path: Path, wiki: Wiki) -> tuple[RunFolder, Task]:
    """A run on the RMSNorm task whose winner dispatches by shape; never driven."""
    run = new_run(
        "rmsnorm", runs_dir=tmp_path / "runs", arch="sm_90a", workloads="h2048-t1,h2048-t1024",
        policy="external", run_id="tuned", wiki=wiki.root,
    )  # fmt: skip
    task = load_task(Path(run.contract.task_dir))
    assert task.knob_space is not None
    small = Rule(
        axes={"num_tokens": 1, "hidden_size": 2048}, knobs={**task.knob_space.default, "threads_per_row": 512}
    )
    source = task.seed_for("sm_90a")
    winner = Candidate(id="c0001", source=source, knobs=task.knob_space.default, rules=(small,))
    run.save_candidate(winner)
    run.append_line("promotions.jsonl", {"round": 1, "candidate": "c0001", "ratio": None})
    return run, task


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder, without this project on its path."""
    environment = {"PATH": os.environ["PATH"], "CUTE_DSL_ARCH": "sm_90a", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=240,
    )  # fmt: skip


def test_an_exported_kernel_compiles_alone(tuned: tuple[RunFolder, Task], tmp_path: Path) -> None:
    export_kernel(*tuned, tmp_path / "out")
    code = (
        "import sys, rmsnorm_bf16 as kernel\n"
        "for tokens in (1, 1024):\n"
        "    axes = {'num_tokens': tokens, 'hidden_size': 2048}\n"
        "    knobs = kernel._knobs(axes)\n"
        "    print(knobs['threads_per_row'], kernel._built(axes, knobs).compiled)\n"
        "print([name for name in sys.modules if name.startswith('kwiki')])\n"
    )
    done = python(tmp_path / "out", "-c", code)
    assert done.returncode == 0, done.stderr
    small, large, foreign = done.stdout.splitlines()
    assert small.startswith("512 (<")
    assert large.startswith("256 (<")
    assert foreign == "[]"


def test_an_exported_test_passes_or_says_which_gpu_it_needs(
    tuned: tuple[RunFolder, Task], tmp_path: Path
) -> None:
    export_kernel(*tuned, tmp_path / "out")
    done = python(tmp_path / "out", "-m", "pytest", "-rs", "-p", "no:cacheprovider", ".")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout or "needs a GPU of compute capability (9, 0)" in done.stdout


@pytest.mark.parametrize(
    "kernel",
    [
        "reference.run(x, weight)",
        "0 * x",
        "reference.run(x, weight).float()",
        "reference.run(x, 0.99 * weight)",
    ],
)
def test_an_exported_test_knows_right_from_wrong(
    tuned: tuple[RunFolder, Task], tmp_path: Path, kernel: str
) -> None:
    out = tmp_path / "out"
    export_kernel(*tuned, out)
    text = f"import reference\n\n\ndef rmsnorm_bf16(x, weight):\n    return {kernel}\n"
    (out / "rmsnorm_bf16.py").write_text(text)
    code = "import test_rmsnorm_bf16 as t; t.DEVICE = 'cpu'; t.test_it_agrees_with_the_reference('h2048-t1')"
    done = python(out, "-c", code)
    is_right = kernel == "reference.run(x, weight)"
    assert done.returncode == (0 if is_right else 1), done.stderr
    assert is_right or "AssertionError" in done.stderr


def test_provenance_names_run_code_and_descent(make_toy_loop: MakeLoop, tmp_path: Path) -> None:
    loop = make_toy_loop(use_cards=False, max_candidates=4)
    (Path(loop.contract.task_dir) / "kernel.py").write_text(ADDS)
    drive(make_toy_loop(run=loop.run))
    export_kernel(loop.run, loop.task, tmp_path / "out")
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    best = loop.run.candidate(provenance["candidate"])
    assert provenance["code_hash"] == best.code_hash
    assert provenance["lineage"][0]["intent"] == best.intent
    assert {w["uuid"] for w in provenance["workloads"]} == set(loop.contract.workloads)
    for workload in provenance["workloads"]:
        speedup = workload["speedup"]["baseline"]
        assert 1 < speedup["low"] <= speedup["value"] <= speedup["high"]
    assert "| n64 |" in (tmp_path / "out" / "README.md").read_text()


def test_what_cannot_be_exported_is_said_in_one_sentence(
    tuned: tuple[RunFolder, Task], make_toy_loop: MakeLoop, tmp_path: Path
) -> None:
    toy = make_toy_loop()
    with pytest.raises(AgentError, match="no candidate of run 'toy-run' passed"):
        export_kernel(toy.run, toy.task, tmp_path / "out")
    with pytest.raises(AgentError, match="has no candidate 'c0009'"):
        export_kernel(*tuned, tmp_path / "out", "c0009")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.py").write_text("")
    with pytest.raises(AgentError, match="is not empty"):
        export_kernel(*tuned, tmp_path / "full")
