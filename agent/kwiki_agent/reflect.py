"""Lessons from measured differences. Code words them; the write gate decides.

A lesson's claim carries no figures, so that a later run that finds the same thing adds its evidence to
the standing page instead of writing a second one. The figures are in `effect` and in the evidence.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

from kwiki_ingest.errors import WikiError
from kwiki_ingest.lessons.gate import GateDecision, add_lesson
from kwiki_ingest.page import Confidence, Effect, Evidence, Knob, Lesson, Status
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.definition import VarAxis
from kwiki_kernels.evaluation import Knobs, StaticReport
from kwiki_kernels.task import Task

from kwiki_agent.compare import timings
from kwiki_agent.contrasts import Contrast, differing_knobs, measured_contrasts
from kwiki_agent.credit import credit_cards
from kwiki_agent.edits import Edit, telling_edits
from kwiki_agent.evidence import evidence_json
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import history


def write_lessons(run: RunFolder, task: Task, wiki: Wiki, incumbent: str | None) -> Iterator[str]:
    """Propose this run's lessons to the gate. Yields one line a decision."""
    credit_cards(run, task, wiki)
    if incumbent is None:
        return
    evidence = {run.id: evidence_json(run).encode()}
    decided = {line["lesson"]["claim"] for line in run.lines("lessons.jsonl")}  # before a kill
    for lesson, body in _lessons(run, task, incumbent):
        if lesson.claim in decided:
            continue
        try:
            decision = add_lesson(wiki, lesson, body, evidence_files=evidence, free_id=True)
        except WikiError as error:
            yield f"refused: {error}"
            continue
        run.append_line("lessons.jsonl", _line(lesson, decision))
        yield f"{decision.action} {decision.page_id}: {lesson.claim}"


def _lessons(run: RunFolder, task: Task, incumbent: str) -> Iterator[tuple[Lesson, str]]:
    contrasts = list(measured_contrasts(run, task, incumbent))
    edits = telling_edits(run)
    if contrasts or edits:
        yield from (_measured_lesson(run, task, contrast) for contrast in contrasts)
        yield from (_edit_lesson(run, task, edit) for edit in edits)
    elif not any(timings(v) for job in run.judged_jobs() for v in run.evaluations(job).values()):
        yield from _static_lesson(run, task)


def _measured_lesson(run: RunFolder, task: Task, contrast: Contrast) -> tuple[Lesson, str]:
    subject = _subject(run, task)
    chosen, rejected = _listed(contrast.chosen), _listed(contrast.rejected)
    when = _when(task, contrast.workloads)
    lesson = Lesson(
        **_scope(run, task),
        id=_slug(f"{task.definition.op_type}-{run.contract.arch}-{chosen}-{_shape_slug(contrast)}"),
        title=f"{subject}: {chosen} over {rejected}{_shape_title(contrast)}"[:300],
        kind="tuning",
        technique=_technique(tuple(contrast.chosen)),
        claim=f"{subject} runs faster with {chosen} than with {rejected}, where {when}.",
        effect=Effect(
            metric="latency_us",
            before=round(contrast.before_us, 3),
            after=round(contrast.after_us, 3),
            unit="us",
            ci95=(round(1 / contrast.ratio.high, 4), round(1 / contrast.ratio.low, 4)),
            n=contrast.ratio.n,
            baseline=rejected[:300],
        ),
        evidence=(Evidence(run=run.id, candidates=(contrast.worse.code_hash, contrast.better.code_hash)),),
        confidence=Confidence.MEASURED,
        knobs=tuple(
            Knob(name=name, op="==", value=value, when=when) for name, value in contrast.chosen.items()
        ),
        valid_when=when,
    )
    return lesson, _measured_body(run, contrast, when)


def _measured_body(run: RunFolder, contrast: Contrast, when: str) -> str:
    environment = contrast.environment
    workloads = ", ".join(contrast.workloads)
    return f"""## What was measured

Device time, geometric mean over {len(contrast.workloads)} workloads: {contrast.before_us:.2f} us before,
{contrast.after_us:.2f} us after, {contrast.ratio.value:.3f} times faster (95 % interval
{contrast.ratio.low:.3f} to {contrast.ratio.high:.3f}, {contrast.ratio.n} samples on each side, one lease,
cold L2). Machine: {environment.gpu}, driver {environment.driver}. The other knobs stood at
{_listed(contrast.unchanged) or "nothing else"}. Workloads: {workloads}.

Nothing was measured outside {when}; with other values of the other knobs the difference may vanish.

## How to repeat it

Run `{run.id}`, candidates `{contrast.worse.id}` and `{contrast.better.id}`. The kernel's source, the knobs
of all candidates and the quartiles of all samples are in `evidence/{run.id}.json`.
"""


def _edit_lesson(run: RunFolder, task: Task, edit: Edit) -> tuple[Lesson, str]:
    subject, when = _subject(run, task), _when(task, run.contract.workloads)
    intent = " ".join(edit.child.intent.split()).rstrip(".")
    verb = "faster" if edit.helped else "slower"
    lesson = Lesson(
        **_scope(run, task),
        id=_slug(f"{task.definition.op_type}-{run.contract.arch}-{intent}"),
        title=f"{subject} {verb}: {intent}"[:300],
        kind="technique" if edit.helped else "failure",
        technique=_slug(intent),
        claim=f"{subject} ran {verb} with this edit, where {when}: {intent}.",
        effect=Effect(
            metric="latency_us",
            before=round(edit.before_us, 3),
            after=round(edit.after_us, 3),
            unit="us",
            ci95=(round(1 / edit.ratio.high, 4), round(1 / edit.ratio.low, 4)),
            n=edit.ratio.n,
            baseline=f"{edit.parent.id}: {edit.parent.intent or 'without the edit'}"[:300],
        ),
        evidence=(Evidence(run=run.id, candidates=(edit.parent.code_hash, edit.child.code_hash)),),
        confidence=Confidence.MEASURED,
        valid_when=when,
    )
    return lesson, _edit_body(run, edit, when)


def _edit_body(run: RunFolder, edit: Edit, when: str) -> str:
    environment = edit.environment
    direction = f" It was a draft of the direction {edit.child.direction}." if edit.child.direction else ""
    return f"""## What was measured

Device time, geometric mean over {len(run.contract.workloads)} workloads: {edit.before_us:.2f} us before,
{edit.after_us:.2f} us after (95 % interval of before over after {edit.ratio.low:.3f} to
{edit.ratio.high:.3f}, {edit.ratio.n} samples on each side, one lease, cold L2). Machine: {environment.gpu},
driver {environment.driver}. Nothing was measured outside {when}.

The author said what the edit was for; that nothing else in it mattered was not shown.{direction}

## The edit

```diff
{edit.diff}
```

## How to repeat it

Run `{run.id}`, candidates `{edit.parent.id}` and `{edit.child.id}`; both texts are in
`evidence/{run.id}.json`.
"""


def _static_lesson(run: RunFolder, task: Task) -> Iterator[tuple[Lesson, str]]:
    """Without a GPU the compiler still proves something: which knob moves the registers most."""
    builds = [(trial.candidate, build) for trial in history(run) if (build := run.build(trial.candidate.id))]
    pairs = [
        (a, b, knobs[0], before, after)
        for a, first in builds
        for b, second in builds
        if a.source == b.source
        and len(knobs := differing_knobs(a.knobs, b.knobs)) == 1
        and (before := _registers(first.static_reports)) > (after := _registers(second.static_reports))
    ]
    if not pairs:
        return
    worse, better, knob, before, after = max(pairs, key=lambda pair: pair[3] / pair[4])
    subject = _subject(run, task)
    chosen, rejected = (f"{knob}={_text(side.knobs[knob])}" for side in (better, worse))
    ratio = round(after / before, 4)
    lesson = Lesson(
        **_scope(run, task),
        id=_slug(f"{task.definition.op_type}-{run.contract.arch}-registers-{chosen}-below-{rejected}"),
        title=f"{subject}: {chosen} takes fewer registers than {rejected}"[:300],
        kind="technique",
        technique=_technique((knob,)),
        claim=f"{subject} compiles to fewer registers per thread with {chosen} than with {rejected}.",
        effect=Effect(metric="registers", before=before, after=after, unit="registers per thread",
                      ci95=(ratio, ratio), n=1, baseline=rejected),
        evidence=(Evidence(run=run.id, candidates=(worse.code_hash, better.code_hash)),),
    )  # fmt: skip
    yield (
        lesson,
        f"""## What was compiled

Most registers over all binaries of the candidate: {before} with {rejected}, {after} with {chosen}
(`{worse.id}` and `{better.id}` of run `{run.id}`, compiled for {run.contract.arch}, not run). The other knobs
were equal.

This is a fact about the compiled code, not about speed: nothing was measured.
""",
    )


def _registers(reports: tuple[StaticReport, ...]) -> int:
    return max((report.registers for report in reports), default=0)


def _scope(run: RunFolder, task: Task) -> dict[str, Any]:
    """The fields that every lesson of this run shares."""
    today = dt.date.fromisoformat(run.contract.created[:10])
    definition = task.definition
    return {
        "arch": (run.contract.arch,),
        "dtype": tuple(sorted({spec.dtype for spec in definition.inputs.values()})),
        "op": _slug(definition.op_type),
        "tags": ("tuning",),
        "status": Status.CANDIDATE,
        "created": today,
        "last_verified": today,
    }


def _when(task: Task, uuids: tuple[str, ...]) -> str:
    """The box of axis values that was measured, as an expression a tuner can evaluate."""
    axes = [task.workload(uuid).axes for uuid in uuids]
    clauses = []
    for name, axis in task.definition.axes.items():
        if not isinstance(axis, VarAxis):
            continue
        low, high = min(values[name] for values in axes), max(values[name] for values in axes)
        clauses.append(f"{name} == {low}" if low == high else f"{low} <= {name} <= {high}")
    return " and ".join(clauses)


def _subject(run: RunFolder, task: Task) -> str:
    return f"{task.name} on {run.contract.arch}"


def _shape_title(contrast: Contrast) -> str:
    return f" on {contrast.workloads[0]}" if len(contrast.workloads) == 1 else ""


def _shape_slug(contrast: Contrast) -> str:
    return contrast.workloads[0] if len(contrast.workloads) == 1 else f"{len(contrast.workloads)}-workloads"


def _technique(knobs: tuple[str, ...]) -> str:
    return _slug("-and-".join(knobs))


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())[:100].rstrip("-")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(knobs: Knobs) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in knobs.items())


def _line(lesson: Lesson, decision: GateDecision) -> dict[str, object]:
    return {
        "action": decision.action,
        "page": decision.page_id,
        "reason": decision.reason,
        "lesson": json.loads(lesson.model_dump_json()),
    }
