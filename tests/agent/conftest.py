"""A small task, a small wiki, and loops over them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from kwiki_agent import __version__
from kwiki_agent.contract import Contract
from kwiki_agent.loop import Loop
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import RunFolder, create_run
from kwiki_ingest.index.sync import sync
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.task import load_task

from tests.agent.toy import FormulaExecutor, MakeLoop


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    folder.mkdir()
    tensor = {"shape": ["n"], "dtype": "float32"}
    definition = {
        "name": "toy", "op_type": "rmsnorm", "axes": {"n": {"type": "var"}},
        "inputs": {"x": tensor}, "outputs": {"y": tensor},
    }  # fmt: skip
    knobs = {
        "knobs": {"width": {"values": [1, 2, 4, 8, 16]}, "depth": {"values": [1, 2, 4, 8]}},
        "default": {"width": 1, "depth": 1},
        "constraints": ["width * depth <= 64"],
    }
    workloads = [{"uuid": f"n{n}", "axes": {"n": n}} for n in (1, 64, 1024)]
    (folder / "definition.json").write_text(json.dumps(definition))
    (folder / "knobs.json").write_text(json.dumps(knobs))
    (folder / "workloads.jsonl").write_text("\n".join(map(json.dumps, workloads)))
    (folder / "reference.py").write_text("def run(x):\n    return x + 1\n")
    (folder / "baseline.py").write_text("def run(x):\n    return x + 1\n")
    (folder / "kernel.py").write_text("# stands for a kernel: the formula executor never builds it\n")
    return folder


@pytest.fixture
def wiki(tmp_path: Path) -> Wiki:
    root = tmp_path / "wiki"
    for folder in ("lessons", "evidence", "techniques"):
        (root / folder).mkdir(parents=True)
    source = Path(__file__).parents[2] / "wiki" / "vocabulary.yaml"
    (root / "vocabulary.yaml").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    wiki = Wiki(root)
    sync(wiki)
    return wiki


@pytest.fixture
def make_toy_loop(tmp_path: Path, task_dir: Path, wiki: Wiki) -> MakeLoop:
    """Makes a loop over the toy task; keyword arguments change the contract."""

    def make(
        executor: FormulaExecutor | None = None, *, run: RunFolder | None = None, **contract: object
    ) -> Loop:
        executor = executor or FormulaExecutor()
        fields: dict[str, object] = {
            "run_id": "toy-run", "task_dir": str(task_dir), "task_name": "toy", "arch": "sm_90a",
            "workloads": ("n1", "n64", "n1024"), "wiki_dir": str(wiki.root), "batch": 4,
            "max_candidates": 12, "kernel_wiki_version": __version__,
            "created": dt.datetime.now(dt.UTC).isoformat(),
        }  # fmt: skip
        run = run or create_run(tmp_path / "runs", Contract.model_validate(fields | contract))
        return Loop(
            run=run, contract=run.contract, task=load_task(task_dir), wiki=wiki, policy=Tuner(),
            builder=FormulaExecutor(executor.latency, measures=False), executor=executor, say=lambda _: None,
        )  # fmt: skip

    return make
