"""`kernel-agent`: start a run, go on with one, list them, read their reports.

Results go to stdout, progress to stderr. Exit code 0: done; 1: failed or stopped; 2: wrong usage;
3: the run waits for a spool. Only the parser lives here, so that `--help` imports nothing heavy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run one command."""
    args = _parser().parse_args(argv)
    from kwiki_agent.commands import run_command

    return run_command(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernel-agent", description="Tune GPU kernels with what the wiki knows."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--runs", type=Path, default=Path("runs"), help="folder of runs (default: runs)")
    common.add_argument("--json", action="store_true", help="print one JSON document instead of text")

    run = commands.add_parser("run", parents=[common], help="start a run")
    run.set_defaults(command="run")
    _add_search_options(run)
    run.add_argument("--fix", action="append", default=[], metavar="KNOB=VALUE", help="do not vary this knob")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--no-cards", action="store_true", help="do not ask the wiki")
    run.add_argument("--search-only", action="store_true", help="no ablation, no confirmation")
    run.add_argument("--spool", type=Path, help="judge elsewhere: write jobs to this folder")
    run.add_argument("--id", help="name of the run (default: task, arch, time, seed)")

    experiment = commands.add_parser(
        "experiment", parents=[common], help="does the wiki help? pairs of runs, without and with lessons"
    )
    experiment.set_defaults(command="experiment")
    _add_search_options(experiment)
    experiment.add_argument("--seeds", type=_positive, default=5, help="number of pairs (default 5)")

    resume = commands.add_parser("resume", parents=[common], help="go on with runs that were stopped or wait")
    resume.set_defaults(command="resume")
    resume.add_argument("run", nargs="+", help="ids or paths of runs")

    runs = commands.add_parser("runs", parents=[common], help="list runs")
    runs.set_defaults(command="runs")

    report = commands.add_parser("report", parents=[common], help="print the report of a run")
    report.set_defaults(command="report")
    report.add_argument("run", help="id or path of a run")
    return parser


def _add_search_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", help="task folder, or the name of a task that comes with the package")
    command.add_argument(
        "--arch", help="e.g. sm_90a; default: this machine's GPU, else sm_100a, compile only"
    )
    command.add_argument("--workloads", default="all", help="uuids, comma-separated, or all (default)")
    command.add_argument(
        "--candidates", type=_positive, default=24, help="candidates of the search (default 24)"
    )
    command.add_argument("--batch", type=_positive, default=8, help="candidates a round (default 8)")
    command.add_argument("--wiki", type=Path, help="wiki folder (default: the nearest wiki/ upwards)")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
