"""A run's verdicts as FlashInfer Traces, for the tools that read them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Candidate
from kwiki_kernels.task import load_task
from kwiki_kernels.trace import export, trace_rows

from kwiki_agent.compare import timings
from kwiki_agent.contract import AgentError
from kwiki_agent.runs import RunFolder, open_run
from kwiki_agent.trials import BASELINE, last_verdict


@dataclass(frozen=True)
class Traced:
    """A candidate, the newest verdict on it, and what the verdict's speedups are read against."""

    candidate: Candidate
    verdict: Evaluation
    baseline_us: dict[str, float]
    """Workload uuid to the baseline's latency, us: that of the same job, else the first one measured."""


def print_traces(args: argparse.Namespace) -> int:
    """`kernel-agent trace`.

    Raises:
        AgentError: there is no such run, or no verdict in it.
        TaskError: the run's task is no longer there.
        OSError: a file cannot be written.
    """
    run = open_run(args.runs, args.run)
    if args.dataset:
        write_dataset(run, args.dataset)
        print(json.dumps({"dataset": str(args.dataset)}) if args.json else args.dataset)
        return 0
    lines = list(trace_lines(run))
    if not lines:
        raise AgentError(f"run '{run.id}' has no verdict to trace: nothing was measured and nothing failed")
    print("\n".join(lines))
    return 0


def trace_lines(run: RunFolder) -> Iterator[str]:
    """One Trace a line, for each candidate and workload with an outcome.

    Raises:
        TaskError: the run's task is no longer there.
    """
    task = load_task(Path(run.contract.task_dir))
    for traced in _traced(run):
        yield from map(json.dumps, trace_rows(task, traced.verdict, traced.baseline_us))


def write_dataset(run: RunFolder, root: Path) -> None:
    """The run's task, workloads, candidates and traces as a FlashInfer-Trace data set below `root`.

    Raises:
        TaskError: the run's task is no longer there.
        OSError: a file cannot be written.
    """
    task = load_task(Path(run.contract.task_dir))
    traced = list(_traced(run))
    rows = [row for t in traced for row in trace_rows(task, t.verdict, t.baseline_us)]
    export(root, task, [t.candidate for t in traced], rows)


def _traced(run: RunFolder) -> Iterator[Traced]:
    baselines = {
        job_id: {uuid: timing.median_us for uuid, timing in timings(verdicts[BASELINE]).items()}
        for job_id in run.judged_jobs()
        if BASELINE in (verdicts := run.evaluations(job_id))
    }
    first = next(iter(baselines.values()), {})
    for candidate in run.candidates():
        verdict, job_id = last_verdict(run, candidate.id)
        if verdict is not None:
            yield Traced(candidate, verdict, {**first, **baselines.get(job_id or "", {})})
