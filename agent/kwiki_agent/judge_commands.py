"""The commands that need no loop: judge, compile and profile one kernel, list tasks, serve a spool."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from kwiki_kernels.errors import ArchError, JudgeError, TaskError
from kwiki_kernels.evaluation import Evaluation, StaticReport, Status
from kwiki_kernels.executor import LocalExecutor
from kwiki_kernels.job import Candidate, Job
from kwiki_kernels.judge import unmeasured_because
from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.profile.metrics import metrics_of, roofline_metrics
from kwiki_kernels.task import Task, load_task

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError
from kwiki_agent.lookup import choose_arch, choose_workloads, find_task, parse_knobs, shipped_tasks
from kwiki_agent.progress import Progress
from kwiki_agent.table import aligned

EXIT_FAILED, EXIT_USAGE = 1, 2
KERNEL, AGAINST, BASELINE = "kernel", "against", "baseline"


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
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(f"{error.strerror or error}{where}", EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("stopped", EXIT_FAILED)


def _judge(args: argparse.Namespace) -> int:
    task, job = _job(args, "judge", rivals=[args.against] if args.against else [])
    verdicts = _run(job, args)
    kernel = verdicts[KERNEL]
    if args.json:
        print(json.dumps([verdict.model_dump(mode="json") for verdict in verdicts.values()]))
    else:
        _print_verdict(task, kernel, unmeasured_because(job))
        _print_lines(aligned(_timing_rows(verdicts)))
        _print_reports(kernel.static_reports)
    return _exit_code(kernel)


def _compile(args: argparse.Namespace) -> int:
    task, job = _job(args, "build")
    kernel = _run(job, args)[KERNEL]
    if args.json:
        print(kernel.model_dump_json())
    else:
        _print_verdict(task, kernel, "compiled only: nothing was measured")
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
        _print_verdict(task, verdict, None)
        return EXIT_FAILED
    with Progress(quiet=args.json) as progress:
        counters, pipeline, notes, pictures = profile(
            job, verdict, task, counters_file=args.ncu_csv, trace_file=args.iket_json,
            capture=why_not is None, folder=args.out, say=progress.say,
        )  # fmt: skip
    diagnosis = diagnose(metrics_of(verdict, counters, pipeline))
    if args.json:
        print(diagnosis.model_dump_json())
        return 0
    share = "" if diagnosis.roofline_share is None else f", {diagnosis.roofline_share:.0%} of its roofline"
    print(f"{task.name} {job.workload_uuids[0]} on {job.arch}: {diagnosis.bound}{share}")
    _print_lines(filter(None, [why_not, *notes]))
    print(f"next edit: {diagnosis.next_edit}")
    rows = [("symptom", "metric", "value", "threshold")]
    rows += [(e.symptom, e.metric, f"{e.value:.4g}", f"{e.op} {e.threshold:g}") for e in diagnosis.evidence]
    _print_lines(aligned(rows) if diagnosis.evidence else [])
    if pipeline:
        header = ("role", "warps", "busy us", "waiting us")
        roles = [(r.role, str(r.warps), f"{r.busy_us:.2f}", f"{r.waiting_us:.2f}") for r in pipeline.roles]
        _print_lines(aligned([header, *roles]))
    _print_reports(verdict.static_reports)
    _print_lines(str(picture) for picture in pictures)
    return 0


def _tasks(args: argparse.Namespace) -> int:
    if args.task:
        return _one_task(load_task(find_task(args.task)), args)
    tasks = [load_task(folder) for folder in shipped_tasks()]
    rows = [
        (task.name, task.definition.op_type, str(len(task.workloads)), ", ".join(sorted(task.kernels)) or "-")
        for task in tasks
    ]
    header = ("task", "op", "workloads", "seeds")
    if args.json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
    else:
        _print_lines(aligned([header, *rows]))
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
    kernels = [(KERNEL, args.kernel), *((AGAINST, path) for path in rivals)]
    job = Job(
        id=f"{stage}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}",
        task_files=task.files,
        workload_uuids=choose_workloads(task, args.workloads),
        arch=choose_arch(args.arch),
        candidates=tuple(Candidate(id=name, source=_source(path), knobs=knobs) for name, path in kernels),
        baselines=tuple(name for name in (BASELINE,) if name in task.baselines and stage == "judge"),
        stage=stage,
        seed=args.seed,
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
        executor = LocalExecutor(on_result=lambda v: progress.say(f"{v.candidate_id} {v.status}"))
        executor.submit(job)
    return {verdict.candidate_id: verdict for verdict in executor.collect(job.id) or ()}


def _bytes_moved(task: Task, uuid: str) -> int:
    return task.definition.bytes_moved(task.definition.axis_values(task.workload(uuid).axes))


def _exit_code(verdict: Evaluation) -> int:
    return 0 if verdict.status in {Status.PASSED, Status.UNMEASURED} else EXIT_FAILED


def _print_verdict(task: Task, verdict: Evaluation, why_not: str | None) -> None:
    print(f"{task.name} on {verdict.arch}: {verdict.status}")
    _print_lines(dict.fromkeys(line for line in (verdict.log, why_not) if line))


def _timing_rows(verdicts: dict[str, Evaluation]) -> list[tuple[str, ...]]:
    """The kernel's workloads, beside every other verdict as time over the kernel's time."""
    from kwiki_agent.compare import compare

    kernel = verdicts[KERNEL]
    others = [verdict for name, verdict in verdicts.items() if name != KERNEL]
    timed = any(result.timing for result in kernel.results)
    if not timed and len({result.status for result in kernel.results}) <= 1:
        return []  # the verdict above says it for all of them
    header = ("workload", "status", *(("device us", "host us", "of roofline") if timed else ()))
    rows = [(*header, *(f"{o.candidate_id} (x)" for o in others if timed))]
    for result in kernel.results:
        cells: tuple[str, ...] = ()
        if timed and result.timing:
            share = roofline_metrics(result, kernel.environment).get("roofline_share")
            cells = (f"{result.timing.median_us:.2f}", f"{result.timing.host_us:.1f}")
            cells += (f"{share:.0%}" if share else "-",)
            for other in others:
                ratio = compare(other, kernel, workloads=[result.uuid])
                cells += (f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else "-",)
        row = (result.uuid, str(result.status), *cells)
        rows.append((*row, *["-"] * (len(rows[0]) - len(row))))
    return rows


def _print_reports(reports: Sequence[StaticReport]) -> None:
    for report in reports:
        axes = " ".join(f"{name}={value}" for name, value in report.static_axes.items())
        print(f"\n{report.kernel[:60]} {axes}".rstrip())
        _print_lines(f"  {line}" for line in _report_lines(report))


def _report_lines(report: StaticReport) -> Iterator[str]:
    yield (
        f"{report.registers} registers, {report.threads_per_cta} threads, {report.smem_bytes} bytes of "
        f"shared memory; {report.ctas_per_sm} CTAs per SM, occupancy {report.occupancy:.0%}, "
        f"limited by {report.occupancy_limit}"
    )
    if report.tmem_columns != 0:
        columns = "unknown" if report.tmem_columns is None else report.tmem_columns
        yield f"tensor memory columns: {columns}"
    if report.local_loads or report.local_stores:
        lines = ", ".join(f"{line} ({count})" for line, count in list(report.local_lines.items())[:5])
        yield (
            f"local memory: {report.spill_bytes} bytes a thread, {report.local_loads} loads, "
            f"{report.local_stores} stores, of which {report.spills} spills" + (f": {lines}" if lines else "")
        )
    if report.features:
        yield ", ".join(f"{name} {count}" for name, count in report.features.items())
    widths = {
        "global loads": report.global_load_bits, "global stores": report.global_store_bits,
        "shared loads": report.smem_load_bits, "shared stores": report.smem_store_bits,
    }  # fmt: skip
    yield (
        "; ".join(
            f"{name}: {', '.join(f'{count} of {bits} bits' for bits, count in found.items())}"
            for name, found in widths.items()
            if found
        )
        or "no plain loads or stores"
    )
    mix = ", ".join(f"{name} {count}" for name, count in list(report.instruction_mix.items())[:8])
    yield f"{report.instructions} instructions: {mix}, ..."


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _fail(sentence: str, code: int) -> int:
    print(f"kernel-agent: {sentence}", file=sys.stderr)
    return code
