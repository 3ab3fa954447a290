"""What each `kernel-agent` command does, and how its outcome reaches the terminal.

What a command needs is imported in it: listing runs must not wait for LangGraph.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from kwiki_ingest.errors import WikiError
from kwiki_ingest.wiki import open_wiki
from kwiki_kernels.errors import ArchError, JudgeError, TaskError
from kwiki_kernels.task import load_task

from kwiki_agent.contract import AgentError, RunStoppedError
from kwiki_agent.runs import list_runs, open_run
from kwiki_agent.table import aligned

EXIT_FAILED, EXIT_USAGE = 1, 2
DEFAULT_BATCH = {"tuner": 8, "external": 8, "claude": 2}
"""A model learns from each verdict, so its rounds are short."""


def run_command(args: argparse.Namespace) -> int:
    """Run the chosen command; every expected error is one sentence on stderr."""
    commands = {
        "run": _run, "resume": _resume, "brief": _brief, "submit": _submit, "fork": _fork,
        "export": _export, "experiment": _experiment, "runs": _runs, "report": _report,
        "trace": _trace,
    }  # fmt: skip
    try:
        return commands[args.command](args)
    except (AgentError, ArchError, TaskError) as error:
        return _fail(str(error), EXIT_USAGE)
    except (JudgeError, RunStoppedError, WikiError) as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        raise  # the reader of stdout, such as `head`, has seen enough: `main` ends quietly
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}; what was recorded so far is kept", EXIT_FAILED)
    except sqlite3.Error as error:
        return _fail(
            f"the run's checkpoint cannot be used ({error}): make room on the disk or the folder writable, "
            "and resume; one that is damaged needs another run",
            EXIT_FAILED,
        )
    except KeyboardInterrupt:
        return _fail("stopped; nothing recorded is lost: `kernel-agent resume RUN` goes on", EXIT_FAILED)


def _run(args: argparse.Namespace) -> int:
    from kwiki_agent.driving import drive_and_print
    from kwiki_agent.policy.accounting import choose_models
    from kwiki_agent.start import new_run

    run = new_run(
        args.task,
        runs_dir=args.runs,
        arch=args.arch,
        workloads=args.workloads,
        screen=args.screen,
        run_id=args.id,
        wiki=args.wiki,
        policy=args.policy,
        models=choose_models(args.model, args.effort, args.reviewer, args.prices)
        if args.policy == "claude"
        else None,
        limits=_limits(args),
        spool=args.spool,
        fixed_knobs=args.fix,
        max_candidates=args.candidates,
        batch=args.batch or DEFAULT_BATCH[args.policy],
        seed=args.seed,
        use_cards=not args.no_cards,
        search_only=args.search_only,
        stop_at=args.stop_at,
    )
    return drive_and_print(run, args)


def _limits(args: argparse.Namespace) -> dict[str, object]:
    """What was given of the contract's budgets and constraints, by its names."""
    given = {
        "language": args.language,
        "allowed_imports": tuple(args.imports.split(",")) if args.imports else None,
        "min_gain": args.min_gain,
        "max_judge_s": args.max_judge,
        "max_gpu_s": args.max_gpu,
        "max_wall_s": args.max_wall,
        "max_tokens": args.max_tokens,
        "max_cost_usd": args.max_cost,
    }
    return {name: value for name, value in given.items() if value is not None}


def _resume(args: argparse.Namespace) -> int:
    from kwiki_agent.driving import drive_and_print

    return max(drive_and_print(open_run(args.runs, run), args) for run in args.run)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    for line in aligned(rows):
        print(line)


def _brief(args: argparse.Namespace) -> int:
    from kwiki_agent.hand_in import brief

    return brief(args)


def _submit(args: argparse.Namespace) -> int:
    from kwiki_agent.hand_in import submit

    return submit(args)


def _trace(args: argparse.Namespace) -> int:
    from kwiki_agent.trace_command import print_traces

    return print_traces(args)


def _fork(args: argparse.Namespace) -> int:
    from kwiki_agent.fork import fork

    asked = {"policy": args.policy, "max_candidates": args.candidates, "seed": args.seed}
    changes = {name: value for name, value in asked.items() if value is not None}
    old = open_run(args.runs, args.run)
    new = fork(old, args.at, new_id=args.id, changes=changes)
    if args.json:
        print(json.dumps({"run": new.id, "forked_from": new.contract.forked_from}))
    else:
        print(
            f"run {new.id} begins where {old.id} had judged {args.at}.\n"
            f"To go on: kernel-agent resume {new.id} --runs {new.path.parent}"
        )
    return 0


def _export(args: argparse.Namespace) -> int:
    from kwiki_agent.export.write import export_kernel

    run = open_run(args.runs, args.run)
    out = args.out or run.path / "export"
    written = export_kernel(run, load_task(Path(run.contract.task_dir)), out, args.candidate)
    if args.json:
        print(json.dumps({"run": run.id, "files": [str(path) for path in written]}))
    else:
        print("\n".join(str(path) for path in written))
    return 0


def _experiment(args: argparse.Namespace) -> int:
    from kwiki_agent.experiment import run_experiment
    from kwiki_agent.progress import Progress

    folder = args.runs / "experiment"
    options = [
        "--workloads",
        args.workloads,
        "--candidates",
        str(args.candidates),
        "--batch",
        str(args.batch or DEFAULT_BATCH["tuner"]),
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
    damaged = []
    for run in runs:
        try:
            contract = run.contract
        except AgentError as error:
            damaged.append(str(error))
            continue
        state = "finished" if (run.path / "report.md").exists() else "unfinished"
        rows.append((run.id, contract.task_name, contract.arch, contract.created, state))
    if args.json:
        print(json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]))
    elif runs:
        _print_table(rows)
    else:
        print(f"no runs in {args.runs}")
    for sentence in damaged:
        print(f"kernel-agent: {sentence}", file=sys.stderr)
    return EXIT_FAILED if damaged else 0


def _report(args: argparse.Namespace) -> int:
    run = open_run(args.runs, args.run)
    report = run.path / "report.md"
    if not report.exists():
        raise AgentError(f"run '{run.id}' has no report yet: `kernel-agent resume {run.id}` finishes it")
    if args.again:
        from kwiki_agent.graph import locate
        from kwiki_agent.report import write_report
        from kwiki_agent.start import make_loop

        loop = make_loop(run, say=lambda _: None)
        write_report(run, loop.task, locate(loop).state)
    text = report.read_text(encoding="utf-8")
    print(json.dumps({"run": run.id, "report": text}) if args.json else text.rstrip("\n"))
    return 0


def _fail(sentence: str, code: int) -> int:
    print(f"kernel-agent: {sentence}", file=sys.stderr)
    return code
