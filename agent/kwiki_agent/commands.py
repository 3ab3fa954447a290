"""What each `kernel-agent` command does, and how its outcome reaches the terminal."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from kwiki_ingest.errors import WikiError
from kwiki_ingest.wiki import open_wiki
from kwiki_kernels.errors import ArchError, JudgeError, TaskError
from kwiki_kernels.task import load_task

from kwiki_agent.contract import AgentError
from kwiki_agent.experiment import run_experiment
from kwiki_agent.graph import drive
from kwiki_agent.progress import Progress
from kwiki_agent.report import candidate_table
from kwiki_agent.runs import RunFolder, list_runs, open_run
from kwiki_agent.start import make_loop, new_run
from kwiki_agent.table import aligned
from kwiki_agent.trials import history

EXIT_FAILED, EXIT_USAGE, EXIT_WAITING = 1, 2, 3


def run_command(args: argparse.Namespace) -> int:
    """Run the chosen command; every expected error is one sentence on stderr."""
    commands = {"run": _run, "resume": _resume, "experiment": _experiment, "runs": _runs, "report": _report}
    try:
        return commands[args.command](args)
    except (AgentError, ArchError, TaskError) as error:
        return _fail(str(error), EXIT_USAGE)
    except (JudgeError, WikiError) as error:
        return _fail(str(error), EXIT_FAILED)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}; what was recorded so far is kept", EXIT_FAILED)
    except sqlite3.Error as error:
        return _fail(
            f"the run's checkpoint cannot be written ({error}); free space, then resume", EXIT_FAILED
        )
    except KeyboardInterrupt:
        return _fail("stopped; nothing recorded is lost: `kernel-agent resume RUN` goes on", EXIT_FAILED)


def _run(args: argparse.Namespace) -> int:
    run = new_run(
        args.task,
        runs_dir=args.runs,
        arch=args.arch,
        workloads=args.workloads,
        run_id=args.id,
        wiki=args.wiki,
        spool=args.spool,
        fixed_knobs=args.fix,
        max_candidates=args.candidates,
        batch=args.batch,
        seed=args.seed,
        use_cards=not args.no_cards,
        search_only=args.search_only,
        stop_at=args.stop_at,
    )
    return _drive(run, args)


def _resume(args: argparse.Namespace) -> int:
    return max(_drive(open_run(args.runs, run), args) for run in args.run)


def _drive(run: RunFolder, args: argparse.Namespace) -> int:
    try:
        with FileLock(run.path / ".lock", timeout=0), Progress(quiet=args.json) as progress:
            waiting_for = drive(make_loop(run, progress.say))
    except Timeout:
        raise AgentError(f"another process is working on run '{run.id}': wait for it or stop it") from None
    if waiting_for is not None:
        _print_waiting(run, waiting_for, args)
        return EXIT_WAITING
    _print_result(run, args)
    return 0


def _print_waiting(run: RunFolder, job_id: str, args: argparse.Namespace) -> None:
    spool = run.contract.spool_dir
    if args.json:
        print(json.dumps({"run": run.id, "waiting_for": job_id, "spool": spool}))
        return
    print(
        f"run {run.id} waits for job {job_id}.\n"
        f"On the GPU machine: python -m kwiki_kernels.worker {spool}\n"
        f"Then here: kernel-agent resume {run.id} --runs {run.path.parent}"
    )


def _print_result(run: RunFolder, args: argparse.Namespace) -> None:
    trials = history(run)
    promotions = list(run.lines("promotions.jsonl"))
    winner = promotions[-1]["candidate"] if promotions else None
    lessons = list(run.lines("lessons.jsonl"))
    report = run.path / "report.md"
    if args.json:
        summary = {
            "run": run.id,
            "winner": winner,
            "report": str(report),
            "lessons": [x["page"] for x in lessons],
        }
        print(json.dumps(summary))
        return
    _print_table(list(candidate_table(trials, load_task(Path(run.contract.task_dir)), winner)))
    if not any(trial.kind == "measured" for trial in trials):
        print(f"\nNothing was measured: no GPU for {run.contract.arch} here. Scores come from compiled code.")
    print(f"\nreport: {report}")
    for line in lessons:
        print(f"lesson {line['action']}: {line['page']}\n  {line['lesson']['claim']}")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    for line in aligned(rows):
        print(line)


def _experiment(args: argparse.Namespace) -> int:
    folder = args.runs / "experiment"
    options = [
        "--workloads",
        args.workloads,
        "--candidates",
        str(args.candidates),
        "--batch",
        str(args.batch),
    ]
    options += ["--arch", args.arch] if args.arch else []
    with Progress(quiet=args.json) as progress:
        pairs = run_experiment(
            args.task,
            wiki=open_wiki(args.wiki).root,
            folder=folder,
            seeds=range(1, args.seeds + 1),
            options=options,
            say=progress.say,
        )
    if args.json:
        print(json.dumps([pair.model_dump() for pair in pairs]))
        return 0
    rows: list[tuple[str, ...]] = [
        ("seed", "best without", "best with", "trials without", "trials with", "lessons", "kind")
    ]
    for p in pairs:
        second = "-" if p.second_best is None else f"{p.second_best:.3f}"
        trials = ("never" if n is None else str(n) for n in (p.first_trials, p.second_trials))
        rows.append((str(p.seed), f"{p.first_best:.3f}", second, *trials, str(p.lessons), p.kind))
    _print_table(rows)
    print(f"\nruns and wikis: {folder}")
    return 0


def _runs(args: argparse.Namespace) -> int:
    runs = list_runs(args.runs)
    rows = [("run", "task", "arch", "created", "state")]
    for run in runs:
        contract = run.contract
        state = "finished" if (run.path / "report.md").exists() else "unfinished"
        rows.append((run.id, contract.task_name, contract.arch, contract.created, state))
    if args.json:
        print(json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]))
    elif runs:
        _print_table(rows)
    else:
        print(f"no runs in {args.runs}")
    return 0


def _report(args: argparse.Namespace) -> int:
    run = open_run(args.runs, args.run)
    report = run.path / "report.md"
    if not report.exists():
        raise AgentError(f"run '{run.id}' has no report yet: `kernel-agent resume {run.id}` finishes it")
    print(report.read_text(encoding="utf-8"), end="")
    return 0


def _fail(sentence: str, code: int) -> int:
    print(f"kernel-agent: {sentence}", file=sys.stderr)
    return code
