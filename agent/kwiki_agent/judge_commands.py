"""The commands that need no loop: judge, compile and profile one kernel, list tasks, serve a spool."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from kwiki_kernels.errors import ArchError, JudgeError, TaskError
from kwiki_kernels.evaluation import Evaluation, StaticReport, Status
from kwiki_kernels.executor import LocalExecutor
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.judge import unmeasured_because
from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.profile.metrics import metrics_of
from kwiki_kernels.task import Task, load_task

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract
from kwiki_agent.diagnosis_text import evidence_rows, role_rows, trace_line
from kwiki_agent.lookup import choose_arch, choose_workloads, find_task, parse_knobs, shipped_tasks
from kwiki_agent.progress import Progress
from kwiki_agent.table import aligned
from kwiki_agent.verdict_text import KERNEL, disturbances, report_lines, timing_rows

EXIT_FAILED, EXIT_USAGE = 1, 2
AGAINST, BASELINE = "against", "baseline"
MIN_GAIN: float = Contract.model_fields["min_gain"].default


def run_command(args: argparse.Namespace) -> int:
    """Run the chosen command; every expected error is one sentence on stderr."""
    commands = {
        "judge": _judge, "compile": _compile, "profile": _profile, "tasks": _tasks, "worker": _worker,
    }  # fmt: skip
    try:
        return commands[args.command](args)
    except (AgentError, ArchError, TaskError) as error:
        return _fail(str(error), EXIT_USAGE)
    except JudgeError as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        raise  # the reader of stdout, such as `head`, has seen enough: `main` ends quietly
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}", EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("stopped", EXIT_FAILED)


def _judge(args: argparse.Namespace) -> int:
    if args.aa:
        return _noise(args)
    task, job = _job(args, "judge", rivals=[args.against] if args.against else [])
    job = job.model_copy(update={"held_out": args.held_out})
    if args.against:
        job = job.model_copy(update={"protocol": job.protocol.interleaved()})
    if args.span:
        job = job.model_copy(update={"protocol": job.protocol.model_copy(update={"span": True})})
    verdicts = _run(job, args)
    kernel = verdicts[KERNEL]
    if args.json:
        print(json.dumps([verdict.model_dump(mode="json") for verdict in verdicts.values()]))
    else:
        _print_verdict(task, kernel, unmeasured_because(job))
        _print_lines(aligned(timing_rows(verdicts)))
        _print_lines(disturbances(verdicts))
        _print_reports(kernel.static_reports)
    return _exit_code(kernel)


def _noise(args: argparse.Namespace) -> int:
    """Compare the kernel with itself."""
    from kwiki_agent.noise import RIVALS, noise_floors, rounds_for

    task, job = _job(args, "judge", rivals=[args.kernel] * (RIVALS - 1))
    protocol = job.protocol.model_copy(update={"rounds": rounds_for(args.aa), "order": "interleaved"})
    job = job.model_copy(update={"protocol": protocol, "baselines": ()})
    verdicts = list(_run(job, args).values())
    floors = noise_floors(verdicts, args.aa, MIN_GAIN)
    if not floors:
        worst = next((v for v in verdicts if v.status is not Status.PASSED), verdicts[0])
        _print_verdict(task, worst, unmeasured_because(job), json=args.json)
        return EXIT_FAILED
    if args.json:
        print(json.dumps([floor.model_dump() for floor in floors]))
    else:
        print(f"{task.name} against itself on {job.arch}: {RIVALS} processes, four rounds a comparison")
        header: tuple[str, ...] = ("workload", "comparisons", f"promoted at {MIN_GAIN:.1%}")
        header += ("95 % within", "largest", "none at")
        rows = [header]
        for floor in floors:
            row: tuple[str, ...] = (floor.workload, str(floor.comparisons), str(floor.promoted))
            rows.append((*row, f"{floor.usual:.2%}", f"{floor.largest:.2%}", f"{floor.margin:.2%}"))
        _print_lines(aligned(rows))
    return EXIT_FAILED if floors[0].promoted else 0


def _compile(args: argparse.Namespace) -> int:
    task, job = _job(args, "build")
    kernel = _run(job, args)[KERNEL]
    if args.json:
        print(kernel.model_dump_json())
    else:
        _print_verdict(task, kernel, None)
        _print_reports(kernel.static_reports)
    return _exit_code(kernel)


def _profile(args: argparse.Namespace) -> int:
    from kwiki_agent.profile_command import profile

    task, job = _job(args, "judge")
    if len(job.workload_uuids) > 1:
        largest = max(job.workload_uuids, key=lambda uuid: _bytes_moved(task, uuid))
        job = job.model_copy(update={"workload_uuids": (largest,)})
    why_not = unmeasured_because(job)
    verdict = _run(job, args)[KERNEL]
    if _exit_code(verdict):
        _print_verdict(task, verdict, None, json=args.json)
        return EXIT_FAILED
    with Progress(quiet=args.json) as progress:
        counters, pipeline, notes, pictures = profile(
            job, verdict, task, counters_file=args.ncu_csv, trace_file=args.iket_json,
            capture=why_not is None, folder=args.out, say=progress.say,
        )  # fmt: skip
    diagnosis = diagnose(metrics_of(verdict, counters, pipeline), pipeline)
    if args.json:
        print(diagnosis.model_dump_json())
        return 0
    share = "" if diagnosis.roofline_share is None else f", {diagnosis.roofline_share:.0%} of its roofline"
    print(f"{task.name} {job.workload_uuids[0]} on {job.arch}: {diagnosis.bound}{share}")
    _print_lines(filter(None, [why_not, *notes]))
    print(f"next edit: {diagnosis.next_edit}")
    _print_lines(aligned(evidence_rows(diagnosis)))
    if pipeline:
        _print_lines([trace_line(pipeline), *aligned(role_rows(pipeline))])
    _print_reports(verdict.static_reports)
    _print_lines(str(picture) for picture in pictures)
    return 0


def _tasks(args: argparse.Namespace) -> int:
    if args.task:
        return _one_task(load_task(find_task(args.task)), args)
    header = ("task", "op", "workloads", "seeds")
    rows = [
        (task.name, task.definition.op_type, len(task.workloads), sorted(task.kernels))
        for task in map(load_task, shipped_tasks())
    ]
    if args.json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
    else:
        _print_lines(aligned([header, *((*row[:2], str(row[2]), ", ".join(row[3]) or "-") for row in rows)]))
    return 0


def _one_task(task: Task, args: argparse.Namespace) -> int:
    import tempfile

    from kwiki_kernels.terms import load_reference

    with tempfile.TemporaryDirectory(prefix="kwiki-task-") as folder:
        _, terms = load_reference(task, Path(folder))
        works = {workload.uuid: terms.work(task.definition, workload) for workload in task.workloads}
    if args.json:
        listed = [
            {"uuid": w.uuid, "axes": task.definition.axis_values(w.axes), **works[w.uuid].model_dump()}
            for w in task.workloads
        ]
        print(json.dumps({"task": task.name, "op": task.definition.op_type, "workloads": listed}))
        return 0
    print(f"{task.name} ({task.definition.op_type})")
    rows = [("workload", "axes", "MB moved", "GFLOP")]
    for workload in task.workloads:
        axes = " ".join(f"{name}={value}" for name, value in workload.axes.items())
        work = works[workload.uuid]
        gflop = f"{work.flops / 1e9:.3f}" if work.flops else "-"
        rows.append((workload.uuid, axes, f"{work.bytes_moved / 1e6:.3f}", gflop))
    _print_lines(aligned(rows))
    return 0


def _worker(args: argparse.Namespace) -> int:
    from kwiki_kernels.worker import main

    return main([str(args.folder), *(["--once"] if args.once else [])])


def _job(
    args: argparse.Namespace, stage: Literal["build", "judge"], rivals: Sequence[Path] = ()
) -> tuple[Task, Job]:
    task = load_task(find_task(args.task))
    knobs = dict(task.knob_space.default) if task.knob_space else {}
    knobs |= parse_knobs(task, args.knob)
    names = [KERNEL, AGAINST, *(f"{AGAINST}-{n}" for n in range(2, len(rivals) + 1))]
    kernels = list(zip(names, [args.kernel, *rivals], strict=False))
    job = Job(
        id=f"{stage}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}",
        task_files=task.files,
        workload_uuids=choose_workloads(task, args.workloads),
        arch=choose_arch(args.arch),
        candidates=tuple(Candidate(id=name, source=_source(path), knobs=knobs) for name, path in kernels),
        baselines=tuple(name for name in (BASELINE,) if name in task.baselines and stage == "judge"),
        stage=stage,
        seed=secrets.randbits(32) if args.seed is None else args.seed,
        kernel_wiki_version=__version__,
    )
    return task, job


def _source(path: Path) -> str:
    if not path.is_file():
        raise AgentError(f"no kernel file '{path}': give the path of a Python file with build or run")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise AgentError(f"'{path}' is not a text file: give the path of a Python file") from None


def _run(job: Job, args: argparse.Namespace) -> dict[str, Evaluation]:
    """Verdicts by candidate, baselines too."""
    with Progress(quiet=args.json) as progress:
        executor = LocalExecutor(
            on_result=lambda v: progress.say(f"{v.candidate_id} {v.status}"),
            on_account=lambda account: progress.say(account.sentence),
        )
        executor.submit(job)
    return {verdict.candidate_id: verdict for verdict in executor.collect(job.id) or ()}


def _bytes_moved(task: Task, uuid: str) -> int:
    return task.definition.bytes_moved(task.definition.axis_values(task.workload(uuid).axes))


def _exit_code(verdict: Evaluation) -> int:
    return 0 if verdict.status in {Status.PASSED, Status.UNMEASURED} else EXIT_FAILED


def _print_verdict(task: Task, verdict: Evaluation, why_not: str | None, *, json: bool = False) -> None:
    """For a person: where a machine reads the results, on stderr."""
    to = sys.stderr if json else sys.stdout
    print(f"{task.name} on {verdict.arch}: {verdict.status}", file=to)
    for line in dict.fromkeys(line for line in (verdict.log, why_not) if line):
        print(line, file=to)


def _print_reports(reports: Sequence[StaticReport]) -> None:
    for report in reports:
        axes = " ".join(f"{name}={value}" for name, value in report.static_axes.items())
        print(f"\n{report.kernel[:60]} {axes}".rstrip())
        _print_lines(f"  {line}" for line in report_lines(report))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _fail(sentence: str, code: int) -> int:
    print(f"kernel-agent: {sentence}", file=sys.stderr)
    return code
