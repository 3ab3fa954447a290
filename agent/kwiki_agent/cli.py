"""`kernel-agent`: tune with runs, and judge, compile or profile one kernel.

Results go to stdout, progress to stderr. Exit code 0: done; 1: failed or stopped; 2: wrong usage;
3: the run waits for a spool. Only the parser lives here, so that `--help` imports nothing heavy.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

WITHOUT_A_LOOP = ("judge", "compile", "profile", "tasks", "worker")


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run one command."""
    args = _parse(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pages may hold more than the terminal can show
    if args.command in WITHOUT_A_LOOP:
        from kwiki_agent.judge_commands import run_command
    else:
        from kwiki_agent.commands import run_command
    status = 0
    try:
        status = run_command(args)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not (status or isinstance(error, BrokenPipeError)):  # then `head` or its like has seen enough
            print(f"kernel-agent: the output cannot be written: {error.strerror}", file=sys.stderr)
        return status or 1
    return status


def _parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments; kernels may also stand after an option, which argparse by itself does not take."""
    parser = _parser()
    args, late = parser.parse_known_args(argv)
    if args.command == "submit" and not any(text.startswith("-") for text in late):
        args.kernel += map(Path, late)
    elif late:
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    return args


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
    run.add_argument(
        "--policy", choices=("tuner", "claude", "external"), default="tuner",
        help="who proposes: the tuner (default), a model, or you, by `brief` and `submit`",
    )  # fmt: skip
    run.add_argument("--fix", action="append", default=[], metavar="KNOB=VALUE", help="do not vary this knob")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--no-cards", action="store_true", help="do not ask the wiki")
    run.add_argument("--search-only", action="store_true", help="no ablation, no confirmation")
    run.add_argument("--stop-at", type=float, metavar="SCORE", help="end the search once a candidate has it")
    run.add_argument("--spool", type=Path, help="judge elsewhere: write jobs to this folder")
    run.add_argument("--id", help="name of the run (default: task, arch, time, seed)")
    _add_contract_options(run)
    _add_model_options(run)

    _add_hand_in_commands(commands, common)

    experiment = commands.add_parser(
        "experiment", parents=[common], help="does the wiki help? pairs of runs, without and with lessons"
    )
    experiment.set_defaults(command="experiment")
    _add_search_options(experiment)
    experiment.add_argument("--seeds", type=_positive, default=5, help="number of pairs (default 5)")

    resume = commands.add_parser("resume", parents=[common], help="go on with runs that were stopped or wait")
    resume.set_defaults(command="resume")
    resume.add_argument("run", nargs="+", help="ids or paths of runs")

    fork = commands.add_parser("fork", parents=[common], help="begin a run in the middle of another")
    fork.set_defaults(command="fork")
    fork.add_argument("run", help="id or path of a run")
    fork.add_argument(
        "--at", required=True, metavar="CANDIDATE", help="go on from where its round was decided"
    )
    fork.add_argument("--id", help="name of the new run (default: the old one's and the candidate's)")
    fork.add_argument("--policy", choices=("tuner", "external"), help="(default: the old run's)")
    fork.add_argument("--candidates", type=_positive, help="budget, those before the fork included")
    fork.add_argument("--seed", type=int, help="(default: another than the old run's)")

    export = commands.add_parser("export", parents=[common], help="a run's best kernel as files of its own")
    export.set_defaults(command="export")
    export.add_argument("run", help="id or path of a run")
    export.add_argument("--candidate", metavar="ID", help="(default: the best)")
    export.add_argument("--out", type=Path, metavar="DIR", help="(default: export/ in the run's folder)")

    runs = commands.add_parser("runs", parents=[common], help="list runs")
    runs.set_defaults(command="runs")

    report = commands.add_parser("report", parents=[common], help="print the report of a run")
    report.set_defaults(command="report")
    report.add_argument("run", help="id or path of a run")
    report.add_argument("--again", action="store_true", help="write it anew, with profiles put there since")

    trace = commands.add_parser("trace", parents=[common], help="print a run's verdicts as FlashInfer Traces")
    trace.set_defaults(command="trace")
    trace.add_argument("run", help="id or path of a run")
    trace.add_argument(
        "--dataset", type=Path, metavar="DIR", help="write a whole data set there: task, kernels and traces"
    )

    _add_judge_commands(commands)
    return parser


def _add_hand_in_commands(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser
) -> None:
    brief = commands.add_parser(
        "brief", parents=[common], help="what the author of the next kernel must know"
    )
    brief.set_defaults(command="brief")
    brief.add_argument("run", help="id or path of a run with --policy external")

    submit = commands.add_parser("submit", parents=[common], help="hand kernels in, as one round")
    submit.set_defaults(command="submit")
    submit.add_argument("run", help="id or path of a run that waits for kernels")
    submit.add_argument(
        "kernel", nargs="*", type=Path, help="kernel files; none: the task's own kernel, with --knobs"
    )
    submit.add_argument("--intent", metavar="TEXT", help="what they try, in one sentence")
    submit.add_argument("--direction", default="", metavar="NAME", help="the idea that they are drafts of")
    submit.add_argument("--cards", metavar="ID,ID", help="pages of the wiki that led to them")
    submit.add_argument("--parent", metavar="ID", help="the candidate they start from (default: the best)")
    submit.add_argument(
        "--knobs", action="append", default=[], metavar="NAME=VALUE,...",
        help="knobs that differ from the task's default; repeat it for several points",
    )  # fmt: skip
    submit.add_argument("--done", action="store_true", help="nothing more comes: confirm the best and report")


def _add_judge_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kernel = argparse.ArgumentParser(add_help=False)
    kernel.add_argument("task", help="task folder, or the name of a task that comes with the package")
    kernel.add_argument("kernel", type=Path, help="kernel file, with build(axes, knobs) or run(...)")
    kernel.add_argument("--arch", help="e.g. sm_90a; default: this machine's GPU, else sm_100a, compile only")
    kernel.add_argument("--workloads", default="all", help="uuids, comma-separated, or all (default)")
    kernel.add_argument(
        "--knob", action="append", default=[], metavar="NAME=VALUE", help="change the default of this knob"
    )
    kernel.add_argument("--seed", type=int, help="of the inputs (default: a secret one, told in the verdict)")
    kernel.add_argument("--json", action="store_true", help="print one JSON document instead of text")

    judge = commands.add_parser("judge", parents=[kernel], help="check and time a kernel")
    judge.set_defaults(command="judge")
    judge.add_argument("--against", type=Path, metavar="KERNEL", help="time this kernel in turns with it")
    judge.add_argument(
        "--aa", type=_positive, metavar="N", help="compare the kernel with itself N times: the noise floor"
    )
    judge.add_argument("--span", action="store_true", help="also the contest's span, by CUPTI")
    judge.add_argument(
        "--held-out", type=_count, default=3, metavar="N",
        help="check N workloads that the task does not list as well (default 3)",
    )  # fmt: skip

    compile_ = commands.add_parser("compile", parents=[kernel], help="what the compiled kernel shows, no GPU")
    compile_.set_defaults(command="compile")

    profile = commands.add_parser("profile", parents=[kernel], help="what bounds a kernel, and what to edit")
    profile.set_defaults(command="profile")
    profile.add_argument("--ncu-csv", type=Path, metavar="FILE", help="read this raw page, do not run ncu")
    profile.add_argument(
        "--iket-json", type=Path, metavar="FILE", help="read this trace, do not run run-iket"
    )
    profile.add_argument("--out", type=Path, default=Path("profile"), help="folder for captures and pictures")

    tasks = commands.add_parser("tasks", help="list tasks, or the workloads of one")
    tasks.set_defaults(command="tasks")
    tasks.add_argument("task", nargs="?", help="show this task's workloads, with bytes and FLOPs")
    tasks.add_argument("--json", action="store_true", help="print one JSON document instead of text")

    worker = commands.add_parser("worker", help="process a spool folder on this machine")
    worker.set_defaults(command="worker")
    worker.add_argument("folder", type=Path, metavar="DIR", help="the folder that holds jobs/")
    worker.add_argument("--once", action="store_true", help="stop when no job is pending")


def _add_search_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", help="task folder, or the name of a task that comes with the package")
    command.add_argument(
        "--arch", help="e.g. sm_90a; default: this machine's GPU, else sm_100a, compile only"
    )
    command.add_argument("--workloads", default="all", help="uuids, comma-separated, or all (default)")
    command.add_argument(
        "--candidates", type=_positive, default=24, help="candidates of the search (default 24)"
    )
    command.add_argument(
        "--batch", type=_positive, help="candidates a round (default 8; 2 under the claude policy)"
    )
    command.add_argument("--wiki", type=Path, help="wiki folder (default: the nearest wiki/ upwards)")


def _add_contract_options(run: argparse.ArgumentParser) -> None:
    contract = run.add_argument_group("contract", "what nothing in the loop can change")
    contract.add_argument("--language", choices=("CuTe-DSL", "Triton"), help="take kernels in this one alone")
    contract.add_argument("--imports", metavar="NAME,NAME", help="packages that kernels may import")
    contract.add_argument(
        "--screen", type=_positive, default=0, metavar="N",
        help="time candidates on N representative workloads first, on all only where they hold their own",
    )  # fmt: skip
    contract.add_argument("--min-gain", type=float, metavar="X", help="promote above 1 + X (default 0.005)")
    contract.add_argument("--max-judge", type=float, metavar="S", help="seconds of building and judging")
    contract.add_argument(
        "--max-gpu", type=float, metavar="S", help="seconds of checking and timing on a GPU"
    )
    contract.add_argument("--max-wall", type=float, metavar="S", help="seconds that the loop is at work")
    contract.add_argument("--max-tokens", type=_positive, metavar="N", help="tokens to and from models")
    contract.add_argument("--max-cost", type=float, metavar="USD", help="money for models")


def _add_model_options(run: argparse.ArgumentParser) -> None:
    models = run.add_argument_group(
        "models", "for --policy claude; key and server come from ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL"
    )
    models.add_argument("--model", help="who writes kernels (default: KERNEL_AGENT_MODEL)")
    models.add_argument(
        "--effort", choices=("low", "medium", "high", "xhigh", "max"),
        help="how hard it thinks (default: KERNEL_AGENT_EFFORT, else the server's)",
    )  # fmt: skip
    models.add_argument(
        "--reviewer", metavar="MODEL",
        help="who may veto a promotion, or none (default: KERNEL_AGENT_REVIEWER, else the author's model)",
    )  # fmt: skip
    models.add_argument("--prices", type=Path, metavar="FILE", help="TOML table of prices per million tokens")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no whole number of at least 0")
    return int(text)


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text} is no whole number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
