"""`kernel-agent export`: a run's winner as a folder that a pull request can take."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import Task

from kwiki_agent import __version__
from kwiki_agent.compare import compare, timings
from kwiki_agent.contract import AgentError
from kwiki_agent.export.kernel_file import entry_name, kernel_file
from kwiki_agent.export.test_file import test_file
from kwiki_agent.report import final_job
from kwiki_agent.runs import RunFolder, write_text
from kwiki_agent.table import markdown_table
from kwiki_agent.trials import BASELINE, history


def export_kernel(run: RunFolder, task: Task, out: Path, candidate_id: str | None = None) -> list[Path]:
    """Write kernel, test, what the test needs, and where it all comes from into the folder `out`.

    Args:
        candidate_id: None: the run's best.

    Raises:
        AgentError: there is no such candidate or none passed, the folder holds something already, or the
            kernel cannot stand alone.
    """
    candidate = _chosen(run, candidate_id)
    if out.exists() and any(out.iterdir()):
        raise AgentError(f"'{out}' is not empty: give another folder with --out")
    name = entry_name(task.definition)
    origin = f"Exported by kernel-wiki {__version__}: run {run.id}, candidate {candidate.id}."
    kernel = kernel_file(candidate, task.definition, origin)
    provenance = _provenance(run, task, candidate, kernel)
    files = {
        f"{name}.py": kernel,
        f"test_{name}.py": test_file(task, run.contract.arch, run.contract.workloads),
        "reference.py": task.reference,
        "inputs.py": task.files.get("inputs.py"),
        "provenance.json": json.dumps(provenance, indent=1) + "\n",
        "README.md": "\n".join(_readme(run, task, candidate, provenance)) + "\n",
    }
    written = {path: text for path, text in files.items() if text is not None}
    for path, text in written.items():
        write_text(out / path, text)
    return [out / path for path in written]


def _chosen(run: RunFolder, candidate_id: str | None) -> Candidate:
    promotions = list(run.lines("promotions.jsonl"))
    chosen = candidate_id or (promotions[-1]["candidate"] if promotions else None)
    if chosen is None:
        raise AgentError(f"no candidate of run '{run.id}' passed: there is nothing to export")
    if chosen not in {candidate.id for candidate in run.candidates()}:
        raise AgentError(f"run '{run.id}' has no candidate '{chosen}'")
    return run.candidate(chosen)


def _provenance(run: RunFolder, task: Task, candidate: Candidate, kernel: str) -> dict[str, Any]:
    contract = run.contract
    verdicts = final_job(run, candidate.id) or {}
    verdict = verdicts.get(candidate.id)
    return {
        "run": run.id,
        "task": task.name,
        "arch": contract.arch,
        "candidate": candidate.id,
        "code_hash": candidate.code_hash,
        "file_sha256": hashlib.sha256(kernel.encode()).hexdigest(),
        "kernel_wiki_version": contract.kernel_wiki_version,
        "exported": dt.datetime.now(dt.UTC).date().isoformat(),
        "lineage": list(_lineage(run, candidate)),
        "measured": verdict is not None and bool(timings(verdict)),
        "environment": verdict.environment.model_dump(mode="json") if verdict else None,
        "protocol": contract.protocol.model_dump(mode="json"),
        "workloads": list(_workloads(verdicts, candidate.id)),
        "lessons": [line["page"] for line in run.lines("lessons.jsonl")],
    }


def _lineage(run: RunFolder, candidate: Candidate) -> Iterator[dict[str, Any]]:
    """The candidate and what it descends from, the newest first."""
    known = {trial.candidate.id: trial for trial in history(run)}
    here: str | None = candidate.id
    while here is not None and (trial := known.get(here)):
        yield {
            "id": here,
            "intent": trial.candidate.intent,
            "policy": trial.candidate.policy,
            "cards": list(trial.candidate.cards),
            "score": trial.score if trial.kind == "measured" else None,
        }
        here = trial.candidate.parent


def _workloads(verdicts: dict[str, Evaluation], candidate_id: str) -> Iterator[dict[str, Any]]:
    if candidate_id not in verdicts:
        return
    best = verdicts[candidate_id]
    baselines = {name: verdict for name, verdict in verdicts.items() if name.startswith(BASELINE)}
    for uuid, timing in timings(best).items():
        ratios = {name: compare(verdict, best, workloads=[uuid]) for name, verdict in baselines.items()}
        result = best.result(uuid)
        yield {
            "uuid": uuid,
            "axes": result.axes if result else {},
            "median_us": timing.median_us,
            "samples": sum(map(len, timing.device_us)),
            "speedup": {
                name: {"value": ratio.value, "low": ratio.low, "high": ratio.high}
                for name, ratio in ratios.items()
                if ratio
            },
        }


def _readme(run: RunFolder, task: Task, candidate: Candidate, provenance: dict[str, Any]) -> Iterator[str]:
    name = entry_name(task.definition)
    parameters = ", ".join(task.definition.inputs)
    yield f"# {name} for {run.contract.arch}\n"
    yield (
        f"`{name}.py` needs torch and the kernel's language, nothing else: `from {name} import {name}`, then "
        f"`{name}({parameters})`. A kernel is compiled when a shape first asks for it, which takes seconds.\n"
    )
    if task.tolerance.selection:
        yield "Its answer is a choice, which a plain test cannot weigh: check it with `kernel-agent judge`.\n"
    else:
        yield f"`pytest test_{name}.py` holds it to the float64 reference on the shapes below.\n"
    if not provenance["measured"]:
        yield "**It was compiled and not measured**: no GPU for its architecture was there.\n"
        return
    environment = provenance["environment"]
    yield (
        f"Device time, cold L2, medians in us; {environment['gpu']}, driver {environment['driver']}; "
        "speed-up with its 95 % interval, all in one lease.\n"
    )
    baselines = list(dict.fromkeys(b for w in provenance["workloads"] for b in w["speedup"]))
    rows = [("workload", "us", *baselines)]
    for workload in provenance["workloads"]:
        ratios = [workload["speedup"].get(baseline) for baseline in baselines]
        cells = [f"{r['value']:.2f}x [{r['low']:.2f}, {r['high']:.2f}]" if r else "-" for r in ratios]
        rows.append((workload["uuid"], f"{workload['median_us']:.2f}", *cells))
    yield markdown_table(rows) + "\n"
    yield (
        f"From run `{run.id}`, candidate `{candidate.id}`; `provenance.json` has its descent, the machine "
        "and the hash of the code."
    )
