"""A long run, by hand: does memory stay flat, and what does the loop itself take?

    python -m tests.agent.long_run CANDIDATES FOLDER

Twelve workloads with 3 x 50 samples each, as on a GPU, judged by a formula: what is measured is the loop.
Prints the resident memory as the run grows, then the loop's own seconds a candidate and the folder's size.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path

from kwiki_agent import __version__
from kwiki_agent.budget import spent
from kwiki_agent.contract import Contract
from kwiki_agent.graph import drive
from kwiki_agent.loop import Loop
from kwiki_agent.policy.tuner import Tuner
from kwiki_agent.runs import create_run
from kwiki_ingest.index.sync import sync
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.evaluation import Knobs
from kwiki_kernels.task import load_task

from tests.agent.killed import KeptFormula

SIZES = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SHOW_EVERY = 50


def write_task(folder: Path) -> Path:
    """A task whose knobs have 20,480 points."""
    folder.mkdir(parents=True)
    tensor = {"shape": ["n"], "dtype": "float32"}
    definition = {
        "name": "toy", "op_type": "rmsnorm", "axes": {"n": {"type": "var"}},
        "inputs": {"x": tensor}, "outputs": {"y": tensor},
    }  # fmt: skip
    sizes = [1, 2, 4, 8, 16]
    knobs = {name: {"values": sizes} for name in ("width", "depth", "rows", "stages", "unroll", "split")}
    files = {
        "definition.json": json.dumps(definition),
        "knobs.json": json.dumps({"knobs": knobs, "default": dict.fromkeys(knobs, 1), "constraints": []}),
        "workloads.jsonl": "\n".join(json.dumps({"uuid": f"n{n}", "axes": {"n": n}}) for n in SIZES),
        "reference.py": "def run(x):\n    return x + 1\n",
        "baseline.py": "def run(x):\n    return x + 1\n",
        "kernel.py": "# stands for a kernel: the formula never builds it\n" * 200,
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


class Improving(KeptFormula):
    """Every candidate is 1 % faster than the one before, so that no round stalls."""

    def __init__(self, folder: Path, *, measures: bool) -> None:
        super().__init__(folder, measures=measures)
        self.latency = self._falling
        self._order: dict[str, int] = {}

    def _falling(self, knobs: Knobs, axes: dict[str, int]) -> float:
        number = self._order.setdefault(json.dumps(knobs), len(self._order))
        return 1e5 * float(axes["n"]) ** 0.5 * 0.99**number


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main(candidates: int, folder: Path) -> None:
    task, wiki = write_task(folder / "task"), Wiki(folder / "wiki")
    (wiki.root / "lessons").mkdir(parents=True)
    vocabulary = Path(__file__).parents[2] / "wiki" / "vocabulary.yaml"
    (wiki.root / "vocabulary.yaml").write_text(vocabulary.read_text(encoding="utf-8"), encoding="utf-8")
    sync(wiki)
    contract = Contract(
        run_id="long", task_dir=str(task), task_name="toy", arch="sm_90a", batch=8, max_candidates=candidates,
        workloads=tuple(f"n{n}" for n in SIZES), wiki_dir=str(wiki.root), kernel_wiki_version=__version__,
        created=dt.datetime.now(dt.UTC).isoformat(),
    )  # fmt: skip
    run = create_run(folder, contract)
    kept = run.path / "kept"
    kept.mkdir()
    shown = 0

    def say(line: str) -> None:
        nonlocal shown
        known = len(list((run.path / "candidates").glob("*"))) if line.startswith("build:") else 0
        if known >= shown + SHOW_EVERY:
            shown = known
            print(f"{known} candidates: {resident_mib():.0f} MiB", flush=True)

    drive(
        Loop(run=run, contract=contract, task=load_task(task), wiki=wiki, policy=Tuner(), say=say,
             builder=KeptFormula(kept, measures=False), executor=Improving(kept, measures=True))
    )  # fmt: skip
    total, count = spent(run), len(run.candidates())
    files = [path for path in run.path.rglob("*") if path.is_file()]
    print(f"{count} candidates: {resident_mib():.0f} MiB")
    print(f"the loop itself took {total.overhead_s:.1f} s, {total.overhead_s / count:.3f} s a candidate")
    print(f"the folder holds {len(files)} files, {sum(p.stat().st_size for p in files) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
