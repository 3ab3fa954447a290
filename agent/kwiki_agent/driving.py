"""Driving a run under its lock, and telling the terminal where it stands afterwards."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from kwiki_kernels.task import load_task

from kwiki_agent.contract import AgentError
from kwiki_agent.graph import drive
from kwiki_agent.policy.external import SUBMISSION
from kwiki_agent.progress import Progress
from kwiki_agent.report import candidate_table
from kwiki_agent.runs import RunFolder
from kwiki_agent.start import make_loop
from kwiki_agent.table import aligned
from kwiki_agent.trials import history

EXIT_WAITING = 3


@contextmanager
def locked(run: RunFolder) -> Iterator[None]:
    """Keep every other process off a run.

    Raises:
        AgentError: another one is working on it.
    """
    try:
        with FileLock(run.path / ".lock", timeout=0):
            yield
    except Timeout:
        raise AgentError(f"another process is working on run '{run.id}': wait for it or stop it") from None


def drive_and_print(run: RunFolder, args: argparse.Namespace) -> int:
    """Let a run go on until it waits or is finished, and print which; the exit code."""
    with locked(run), Progress(quiet=args.json) as progress:
        waiting_for = drive(make_loop(run, progress.say))
    if waiting_for is None:
        _print_result(run, args)
        return 0
    if args.json:
        print(json.dumps({"run": run.id, "waiting_for": waiting_for, "spool": run.contract.spool_dir}))
    elif waiting_for == SUBMISSION:
        _print_candidates(run)
        options = f"{run.id} --runs {run.path.parent}"
        print(
            f"\nrun {run.id} waits for kernels.\n"
            f"What it needs to know: kernel-agent brief {options}\n"
            f"Then: kernel-agent submit {options} kernel.py --intent TEXT"
        )
    else:
        print(
            f"run {run.id} waits for job {waiting_for}.\n"
            f"On the GPU machine: python -m kwiki_kernels.worker {run.contract.spool_dir}\n"
            f"Then here: kernel-agent resume {run.id} --runs {run.path.parent}"
        )
    return EXIT_WAITING


def _print_result(run: RunFolder, args: argparse.Namespace) -> None:
    lessons = list(run.lines("lessons.jsonl"))
    report = run.path / "report.md"
    if args.json:
        pages = [line["page"] for line in lessons]
        print(json.dumps({"run": run.id, "winner": _leader(run), "report": str(report), "lessons": pages}))
        return
    _print_candidates(run)
    if not any(trial.kind == "measured" for trial in history(run)):
        print(f"\nNothing was measured: no GPU for {run.contract.arch} here. Scores come from compiled code.")
    print(f"\nreport: {report}")
    for line in lessons:
        print(f"lesson {line['action']}: {line['page']}\n  {line['lesson']['claim']}")


def _print_candidates(run: RunFolder) -> None:
    if trials := history(run):
        task = load_task(Path(run.contract.task_dir))
        for line in aligned(list(candidate_table(trials, task, _leader(run)))):
            print(line)


def _leader(run: RunFolder) -> str | None:
    promotions = list(run.lines("promotions.jsonl"))
    return promotions[-1]["candidate"] if promotions else None
