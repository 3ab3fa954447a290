"""`report.md` with its HTML twin and plots, `benchmark.csv`, `candidates.jsonl`: the story of a run."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from kwiki_kernels.evaluation import Evaluation, Knobs
from kwiki_kernels.profile.metrics import roofline_metrics
from kwiki_kernels.task import Task

from kwiki_agent.compare import compare, timings
from kwiki_agent.contract import Contract
from kwiki_agent.report_html import write_html
from kwiki_agent.report_sections import (
    cost_section,
    direction_section,
    profile_section,
    repeat_options,
    trouble_section,
)
from kwiki_agent.runs import RunFolder, write_text
from kwiki_agent.state import RunState
from kwiki_agent.table import markdown_table
from kwiki_agent.trials import BASELINE, Trial, history, trial_of

Final = dict[str, Evaluation]
"""Verdicts of the job that a report speaks of, by candidate id."""


def write_report(run: RunFolder, task: Task, state: RunState) -> Path:
    """Write all report files of a run; harmless to repeat. Returns the path of `report.md`."""
    from kwiki_agent.plots import plot_progress, plot_verdict_roofline

    trials = history(run)
    write_text(run.path / "candidates.jsonl", "".join(json.dumps(_row(t)) + "\n" for t in trials))
    write_text(run.path / "benchmark.csv", _benchmark_csv(run))
    plot_progress(trials, path=run.path / "progress")
    incumbent = state.get("incumbent")
    final = final_job(run, incumbent)
    if final and incumbent:
        plot_verdict_roofline(final[incumbent], task, path=run.path / "roofline")
    write_text(run.path / "report.md", "\n".join(_sections(run, task, state, trials, final)) + "\n")
    write_html(run.path / "report.md")
    return run.path / "report.md"


def candidate_table(trials: list[Trial], task: Task, incumbent: str | None) -> Iterator[tuple[str, ...]]:
    """Rows for people: a header, then one a candidate, with the knobs that differ from the default."""
    default = task.knob_space.default if task.knob_space else {}
    yield ("candidate", "status", "score", "knobs", "intent")
    for trial in trials:
        mark = " *" if trial.candidate.id == incumbent else ""
        yield (
            trial.candidate.id + mark,
            str(trial.status),
            "-" if trial.score is None else f"{trial.score:.3f}",
            f"dispatch over {len(trial.candidate.rules)} shapes"
            if trial.candidate.rules
            else _departures(trial.candidate.knobs, default),
            trial.candidate.intent,
        )


def _departures(knobs: Knobs, default: Knobs) -> str:
    changed = (f"{n}={str(v).lower()}" for n, v in knobs.items() if v != default.get(n))
    return " ".join(changed) or "default"


def _sections(
    run: RunFolder, task: Task, state: RunState, trials: list[Trial], final: Final | None
) -> Iterator[str]:
    contract = run.contract
    measured = any(trial.kind == "measured" for trial in trials)
    yield f"# {task.name} on {contract.arch}: run {run.id}\n"
    incumbent = state.get("incumbent")
    yield _verdict_line(contract, trials, state, final, measured=measured)
    yield "\n![progress](progress.svg)\n" if any(t.score is not None for t in trials) else ""
    if final and incumbent:
        yield from _workload_section(run, final, incumbent)
        yield "![roofline](roofline.svg)\n" if (run.path / "roofline.svg").exists() else ""
    yield "## Candidates\n"
    yield (
        f"Score: speed-up over `{BASELINE}`, geometric mean over {len(contract.workloads)} workloads."
        if measured
        else "Score: a static proxy from the compiled code (bytes in flight, discounted for spills). "
        "It ranks candidates; it is no measurement."
    )
    yield (
        "\nKnobs are those that differ from the task's default.\n\n"
        + markdown_table(list(candidate_table(trials, task, state.get("incumbent"))))
        + "\n"
    )
    yield from direction_section(run, trials)
    yield from profile_section(run)
    yield from _failure_section(trials)
    yield from trouble_section(run)
    yield from _cards_section(run)
    yield from _lessons_section(run)
    yield from cost_section(run)
    yield "## How to repeat it\n"
    command = shlex.join(["kernel-agent", "run", *repeat_options(contract, task)])
    yield f"`{command}`, kernel-wiki {contract.kernel_wiki_version}."


def _verdict_line(
    contract: Contract, trials: list[Trial], state: RunState, final: Final | None, *, measured: bool
) -> str:
    incumbent = trial_of(trials, state.get("incumbent"))
    why = f"The run ended because {state['stop']}." if "stop" in state else "The run is not finished."
    if incumbent is None:
        return f"No candidate passed. {why}"
    if not measured:
        return (
            f"**Nothing was measured**: there was no GPU for {contract.arch}. The candidates were "
            f"compiled and inspected; `{incumbent.candidate.id}` has the best static score. {why}"
        )
    speed_up = _speed_up(contract, incumbent, final)
    return f"`{incumbent.candidate.id}` is {speed_up} times as fast as `{BASELINE}`. {why}"


def _speed_up(contract: Contract, incumbent: Trial, final: Final | None) -> str:
    """As the last job has it, which the table shows; without one, the score of the search."""
    if final and BASELINE in final:
        ratio = compare(final[BASELINE], final[incumbent.candidate.id], workloads=contract.workloads)
        if ratio:
            return f"{ratio.value:.3f} (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    return f"{incumbent.score:.3f}"


def final_job(run: RunFolder, incumbent: str | None) -> Final | None:
    """Verdicts of the newest job that timed the incumbent beside a baseline, else beside nothing."""
    alone: Final | None = None
    for job_id in reversed(run.judged_jobs()):
        job = run.evaluations(job_id)
        if incumbent in job and timings(job[incumbent]):
            if BASELINE in job:
                return job
            alone = alone or job
    return alone


def _workload_section(run: RunFolder, verdicts: dict[str, Evaluation], incumbent: str) -> Iterator[str]:
    best = verdicts[incumbent]
    baselines = [verdict for name, verdict in verdicts.items() if name.startswith(BASELINE)]
    environment = best.environment
    yield "## Workloads\n"
    yield (
        f"One lease, device time, cold L2, medians in us. {environment.gpu}, driver {environment.driver}, "
        f"copy kernel {environment.copy_gbps or 0:.0f} GB/s, an empty kernel shows "
        f"{environment.timer_floor_us or 0:.2f} us, {best.created[:10]}, "
        + ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
        + ".\n"
    )
    rows = [("workload", incumbent, *(f"{b.candidate_id} (x)" for b in baselines), "of roofline", "host us")]
    losing: list[str] = []
    for uuid in run.contract.workloads:
        timing, result = timings(best).get(uuid), best.result(uuid)
        if timing is None or result is None:
            continue
        cells = []
        for baseline in baselines:
            ratio = compare(baseline, best, workloads=[uuid])
            cells.append(f"{timings(baseline)[uuid].median_us:.2f} ({ratio.value:.2f})" if ratio else "-")
            if ratio and not ratio.faster:
                losing.append(f"`{uuid}` against `{baseline.candidate_id}` ({ratio.value:.3f}x)")
        share = roofline_metrics(result, environment).get("roofline_share")
        rows.append(
            (
                uuid,
                f"{timing.median_us:.2f}",
                *cells,
                f"{share:.0%}" if share else "-",
                f"{timing.host_us:.1f}",
            )
        )
    yield markdown_table(rows) + "\n"
    if baselines:
        yield f"Not faster than a baseline outside the noise: {', '.join(losing) or 'no workload'}.\n"


def _failure_section(trials: list[Trial]) -> Iterator[str]:
    failed = [t for t in trials if t.failed]
    if failed:
        yield "## What failed, and why\n"
        for trial in failed:
            said = next((line for line in trial.log.splitlines() if line.strip()), "no message")
            yield f"- `{trial.candidate.id}` {trial.status}: {said.strip()[:200]}"
        yield ""


def _cards_section(run: RunFolder) -> Iterator[str]:
    used = {card: None for line in run.lines("retrievals.jsonl") for card in line["cards"]}
    yield "## Cards retrieved\n"
    yield (", ".join(f"`{card}`" for card in used) or "None.") + "\n"


def _lessons_section(run: RunFolder) -> Iterator[str]:
    yield "## Lessons\n"
    lines = list(run.lines("lessons.jsonl"))
    for line in lines:
        yield f"- {line['action']} `{line['page']}`: {line['lesson']['claim']} {line['reason']}"
    yield "" if lines else "None.\n"


def _row(trial: Trial) -> dict[str, object]:
    candidate = trial.candidate
    return {
        "id": candidate.id,
        "parent": candidate.parent,
        "intent": candidate.intent,
        "knobs": candidate.knobs,
        "rules": len(candidate.rules),
        "cards": candidate.cards,
        "code_hash": candidate.code_hash,
        "status": trial.status,
        "score": trial.score,
        "kind": trial.kind,
        "job": trial.job_id,
        "log": trial.log[:300],
    }


def _benchmark_csv(run: RunFolder) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["job", "candidate", "workload", "status", "median_us", "host_us", "relative_l2", "timer"]
    )
    for job_id in run.judged_jobs():
        for name, verdict in run.evaluations(job_id).items():
            for r in verdict.results:
                timing = (f"{r.timing.median_us:.3f}", f"{r.timing.host_us:.3f}") if r.timing else ("", "")
                error = f"{r.error.relative_l2:.3e}" if r.error else ""
                writer.writerow(
                    [job_id, name, r.uuid, r.status, *timing, error, r.timing.timer if r.timing else ""]
                )
    return stream.getvalue()
