"""The summary of a run that lessons cite: small enough to commit, whole enough to check a claim against."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from kwiki_kernels.evaluation import Evaluation, Timing

from kwiki_agent.compare import timings
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import last_verdict


def evidence_json(run: RunFolder) -> str:
    """Contract, environments, candidates, their sources once each, and quartiles of every timed workload."""
    jobs = {job_id: run.evaluations(job_id) for job_id in run.judged_jobs()}
    document = {
        "run": run.id,
        "contract": run.contract.model_dump(mode="json", exclude={"task_dir", "wiki_dir", "spool_dir"}),
        "candidates": {
            candidate.id: {
                "code_hash": candidate.code_hash,
                "source": _digest(candidate.source),
                "parent": candidate.parent,
                "intent": candidate.intent,
                "knobs": candidate.knobs,
                "rules": [rule.model_dump() for rule in candidate.rules],
                "cards": candidate.cards,
                "registers": _registers(run, candidate.id),
            }
            for candidate in run.candidates()
        },
        "sources": {_digest(candidate.source): candidate.source for candidate in run.candidates()},
        "jobs": {
            job_id: {
                "environment": next(iter(verdicts.values())).environment.model_dump(mode="json"),
                "verdicts": {name: _verdict(verdict) for name, verdict in verdicts.items()},
            }
            for job_id, verdicts in jobs.items()
            if verdicts
        },
    }
    return json.dumps(document, indent=1) + "\n"


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


def _verdict(verdict: Evaluation) -> dict[str, Any]:
    return {
        "status": verdict.status,
        "seed": verdict.seed,
        "created": verdict.created,
        "device_us": {uuid: _quartiles(timing) for uuid, timing in timings(verdict).items()},
        "failed": {r.uuid: f"{r.status}: {r.log[:200]}" for r in verdict.results if r.status != "PASSED"},
    }


def _quartiles(timing: Timing) -> list[float | int | str]:
    """[first quartile, median, third quartile, samples, timer]."""
    samples = np.asarray(timing.device_us)
    quartiles = [round(float(q), 3) for q in np.quantile(samples, [0.25, 0.5, 0.75])]
    return [*quartiles, int(samples.size), timing.timer]


def _registers(run: RunFolder, candidate_id: str) -> list[int]:
    verdict, _ = last_verdict(run, candidate_id)
    return [report.registers for report in verdict.static_reports] if verdict else []
