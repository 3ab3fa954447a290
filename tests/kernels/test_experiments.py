"""The experiments: all are run, each claim is asked once, and their kernels compile without a GPU."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "kernels" / "experiments"
SAMPLE = ("tma_latency", "split_k")
"""Compiling all takes minutes on two cores."""


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    """Every module of the folder; those that hold claims are experiments."""
    sys.path.insert(0, str(FOLDER))
    try:
        return {path.stem: importlib.import_module(path.stem) for path in FOLDER.glob("*.py")}
    finally:
        sys.path.remove(str(FOLDER))


def test_every_experiment_is_run(modules: dict[str, ModuleType]) -> None:
    experiments = {name for name, module in modules.items() if hasattr(module, "CLAIMS")}
    assert sorted(experiments) == sorted(modules["run_all"].EXPERIMENTS)


def test_every_claim_is_one_question_of_one_experiment(modules: dict[str, ModuleType]) -> None:
    claims = [(claim, q) for m in modules.values() for claim, q in getattr(m, "CLAIMS", {}).items()]
    assert len(claims) == len({claim for claim, _ in claims})
    assert all(question.endswith("?") for _, question in claims)


def test_evidence_answers_claims_of_its_experiment(modules: dict[str, ModuleType]) -> None:
    kept = [json.loads(path.read_text()) for path in (ROOT / "wiki" / "evidence").glob("*.json")]
    measured = [summary for summary in kept if "measurements" in summary]
    assert measured
    for summary in measured:
        answered = {measurement["claim"] for measurement in summary["measurements"]}
        assert answered <= set(modules[summary["experiment"]].CLAIMS)


def test_the_table_of_the_documentation_has_the_figures_of_the_evidence(
    modules: dict[str, ModuleType],
) -> None:
    rows = [
        line for line in modules["claims_table"].table(ROOT / "wiki").splitlines() if line.startswith("| `")
    ]
    document = (ROOT / "docs" / "experiments.md").read_text()
    # The last cell names pages, which come and go.
    missing = [row for row in rows if row.rsplit("|", 2)[0] not in document]
    assert missing == [], "write the table anew with kernels/experiments/claims_table.py"


def test_kernels_of_experiments_compile_without_a_gpu() -> None:
    environment = os.environ | {"CUTE_DSL_ARCH": "sm_90a"}
    running = {
        name: subprocess.Popen(
            [sys.executable, str(FOLDER / f"{name}.py"), "--compile-only"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in SAMPLE
    }
    errors = {name: process.communicate(timeout=300)[1] for name, process in running.items()}
    assert {name: errors[name] for name, process in running.items() if process.returncode} == {}


def test_an_experiment_that_fails_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Where there is no GPU, measuring fails after compiling: that must not stop the next one."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    command = [
        sys.executable,
        str(FOLDER / "run_all.py"),
        "--out",
        str(tmp_path),
        "--only",
        "latency",
        "atomics",
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(o["experiment"], o["outcome"]) for o in outcomes] == [
        ("latency", "failed with exit status 1"),
        ("atomics", "failed with exit status 1"),
    ]
    assert done.returncode == 1
    said = (tmp_path / "latency.log").read_text()
    assert said.startswith("latency.py: there is no GPU here")
    assert said.count("\n") == 1
