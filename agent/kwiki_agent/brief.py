"""All that an author outside the loop needs to write the next kernel, as one document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kwiki_ingest.quoting import NOTE, as_data
from kwiki_kernels.evaluation import Evaluation, Knobs, Record
from kwiki_kernels.profile.iket import Pipeline
from kwiki_kernels.profile.metrics import roofline_metrics

from kwiki_agent.diagnosis_text import role_rows, trace_line
from kwiki_agent.graph import Position
from kwiki_agent.loop import Loop
from kwiki_agent.report import candidate_table, final_job
from kwiki_agent.submission import MAX_SOURCE_BYTES
from kwiki_agent.table import markdown_table
from kwiki_agent.trials import BASELINE, Trial, history, trial_of

SHOWN_FAILURES = 3
SHOWN_LOG_CHARS = 1500

RULES = (
    "A kernel is one Python module with `build(axes, knobs) -> launch`, which compiles without a GPU, or "
    "with `run(*inputs, *outputs)`; the kernel below shows the form.",
    f"It is UTF-8, at most {MAX_SOURCE_BYTES // 1024} KiB, in CuTe-DSL or Triton. torch may allocate and "
    "describe tensors and compute nothing; exceptions are not caught; nothing else is imported.",
    "It is checked against a float64 reference with several sets of values, in a closed process, and timed "
    "with a cold L2. A caught trick is REJECTED and recorded.",
    "What belongs together goes into one submission: it is judged in one lease, beside the best so far.",
    "It is promoted if it passes on every workload and the whole 95 % interval of its speed-up over the "
    "best lies above the least gain.",
    "A direction, named on submission, takes five drafts. After two rounds without a promotion only a "
    "direction not tried yet is taken; a third ends the search. Rounds in which nothing compiled do not "
    "count.",
)


class BestKernel(Record):
    """The incumbent, and how it did where it was last timed."""

    id: str
    score: float | None
    knobs: Knobs
    source: str
    workloads: tuple[dict[str, Any], ...]
    """uuid, median_us, baseline_us, roofline_share, host_us; what was not measured is None."""


class BriefDocument(Record):
    """What `kernel-agent brief --json` prints."""

    run: str
    waiting_for: str | None
    """A submission, the id of a job, or None where the run is finished or has to be resumed."""
    finished: str | None
    """Why the run ended."""
    phase: str
    round: int
    """Number of the round that comes next, from 1."""
    room: int
    """Candidates that the next submission may hold."""
    stalled: int
    contract: dict[str, Any]
    definition: dict[str, Any]
    workloads: tuple[dict[str, Any], ...]
    reference: str
    baselines: dict[str, str]
    seed: str | None
    """Text of the task's own kernel."""
    knobs: dict[str, Any] | None
    """The search space of that kernel."""
    best: BestKernel | None
    candidates: tuple[tuple[str, ...], ...]
    """A header, then one row each: id, status, score, knobs, intent."""
    failures: tuple[dict[str, str], ...]
    """The newest: id, status, log."""
    diagnosis: dict[str, Any] | None
    """What bounds a kernel, evidence, next edit, metrics: the incumbent's where `profile/<id>/diagnosis.json`
    holds the output of `kernel-agent profile --json`, else of the last round's best."""
    cards_note: str = NOTE
    cards: tuple[dict[str, str], ...]
    """At most three pages: id, title, status, confidence, and the quoted text."""
    rules: tuple[str, ...] = RULES
    submit: str


def brief_document(loop: Loop, position: Position) -> BriefDocument:
    """The brief of a run where it stands."""
    state, contract, task = position.state, loop.contract, loop.task
    trials = history(loop.run)
    space = task.knob_space
    return BriefDocument(
        run=loop.run.id,
        waiting_for=position.waiting_for,
        finished=state.get("stop") if position.finished else None,
        phase=state.get("phase", "search"),
        round=state.get("round", 0) + 1,
        room=max(min(contract.batch, contract.max_candidates - state.get("searched", 0)), 0),
        stalled=state.get("stalled", 0),
        contract=contract.model_dump(mode="json", exclude={"wiki_dir", "spool_dir", "task_dir"}),
        definition=task.definition.model_dump(mode="json", exclude={"reference"}, exclude_none=True),
        workloads=tuple(
            {"uuid": uuid, "axes": task.definition.axis_values(task.workload(uuid).axes)}
            for uuid in contract.workloads
        ),
        reference=task.reference,
        baselines=task.baselines,
        seed=_seed(loop),
        knobs=space.model_dump(mode="json") if space else None,
        best=_best(loop, state.get("incumbent"), trials),
        candidates=tuple(candidate_table(trials, task, state.get("incumbent"))),
        failures=tuple(
            {"id": t.candidate.id, "status": str(t.status), "log": t.log[:SHOWN_LOG_CHARS]}
            for t in [t for t in trials if t.failed][-SHOWN_FAILURES:]
        ),
        diagnosis=_diagnosis(loop, state.get("incumbent")),
        cards=tuple(
            {
                "id": card["id"], "title": card["title"], "status": card["status"],
                "confidence": card["confidence"], "text": as_data(card["text"], card["id"]),
            }
            for card in state.get("cards", [])
        ),
        submit=f"kernel-agent submit {loop.run.id} --runs {loop.run.path.parent} KERNEL.py [KERNEL.py ...] "
        "--intent TEXT [--direction NAME] [--cards ID,ID] [--parent ID] [--knobs NAME=VALUE,...]...; "
        "--knobs alone takes the task's own kernel; --done ends the search",
    )  # fmt: skip


def brief_text(document: BriefDocument) -> str:
    """The brief as Markdown."""
    return "\n".join(_lines(document))


def _seed(loop: Loop) -> str | None:
    return loop.task.seed_for(loop.contract.arch) if loop.task.has_seed_for(loop.contract.arch) else None


def _diagnosis(loop: Loop, incumbent: str | None) -> dict[str, Any] | None:
    profiled = loop.run.path / "profile" / str(incumbent) / "diagnosis.json"
    if profiled.exists():
        return {"candidate": incumbent, **json.loads(profiled.read_text(encoding="utf-8"))}
    return next(reversed(list(loop.run.lines("diagnoses.jsonl"))), None)


def _best(loop: Loop, incumbent: str | None, trials: list[Trial]) -> BestKernel | None:
    trial = trial_of(trials, incumbent)
    if incumbent is None or trial is None:
        return None
    job = final_job(loop.run, incumbent) or {}
    return BestKernel(
        id=incumbent,
        score=trial.score,
        knobs=trial.candidate.knobs,
        source=trial.candidate.source,
        workloads=tuple(_timed(job, incumbent)) if job else (),
    )


def _timed(job: dict[str, Evaluation], incumbent: str) -> Iterator[dict[str, Any]]:
    verdict, baseline = job[incumbent], job.get(BASELINE)
    for result in verdict.results:
        beside = baseline.result(result.uuid) if baseline else None
        yield {
            "uuid": result.uuid,
            "median_us": result.timing.median_us if result.timing else None,
            "baseline_us": beside.timing.median_us if beside and beside.timing else None,
            "roofline_share": roofline_metrics(result, verdict.environment).get("roofline_share"),
            "host_us": result.timing.host_us if result.timing else None,
        }


def _lines(document: BriefDocument) -> Iterator[str]:
    d = document
    round_ = "" if d.finished else f", round {d.round}"
    yield f"# {d.definition['name']} on {d.contract['arch']}: run {d.run}{round_}\n"
    yield _standing(d) + "\n"
    yield "## What counts\n"
    yield (
        f"The geometric mean over {len(d.workloads)} workloads of baseline time over kernel time (device "
        f"time, cold L2). Least gain of a promotion: {d.contract['min_gain']:.1%}. Budget: "
        f"{d.contract['max_candidates']} candidates, {d.contract['max_judge_s']:.0f} s of building and "
        "judging.\n"
    )
    yield from (f"- {rule}" for rule in d.rules)
    yield "\n## The task\n"
    yield from _task_lines(d)
    yield from _best_lines(d)
    yield "## What was tried\n"
    yield (markdown_table(list(d.candidates)) if len(d.candidates) > 1 else "Nothing yet.") + "\n"
    for failure in d.failures:
        yield f"{failure['id']}, {failure['status']}:\n\n```text\n{failure['log']}\n```\n"
    yield from _diagnosis_lines(d)
    yield f"## Pages of the wiki\n\n{d.cards_note}\n"
    for card in d.cards:
        yield f"{card['title']} ({card['status']}, {card['confidence']}; whole: `wiki show {card['id']}`)\n"
        yield card["text"] + "\n"
    yield "" if d.cards else "None fits.\n"
    yield f"## To submit\n\n`{d.submit}`"


def _standing(d: BriefDocument) -> str:
    if d.finished:
        return f"The run is finished: {d.finished}."
    if d.waiting_for == "submission":
        stalled = f" {d.stalled} rounds brought no promotion." if d.stalled else ""
        return f"It waits for up to {d.room} kernels.{stalled}"
    if d.waiting_for:
        return f"It waits for job {d.waiting_for}; then `kernel-agent resume {d.run}`."
    return f"It was stopped; `kernel-agent resume {d.run}` goes on."


def _task_lines(d: BriefDocument) -> Iterator[str]:
    for kind in ("inputs", "outputs"):
        for name, spec in d.definition[kind].items():
            shape = "scalar" if spec.get("shape") is None else f"[{', '.join(spec['shape'])}]"
            yield f"- {kind[:-1]} `{name}`: {spec['dtype']} {shape} {spec.get('description', '')}".rstrip()
    axes = list(d.workloads[0]["axes"])
    yield "\n" + markdown_table(
        [("workload", *axes), *((w["uuid"], *map(str, w["axes"].values())) for w in d.workloads)]
    )
    yield f"\nReference:\n\n```python\n{d.reference.strip()}\n```\n"
    for name, text in d.baselines.items():
        yield f"`{name}`:\n\n```python\n{text.strip()}\n```\n"
    if d.knobs:
        yield "Knobs of the task's own kernel (default first):\n"
        for name, spec in d.knobs["knobs"].items():
            values = ", ".join(map(str, spec["values"]))
            yield f"- `{name}` {d.knobs['default'][name]}; {values}. {spec['description']}".rstrip()
        yield from (f"- it must hold: `{rule}`" for rule in d.knobs["constraints"])
        yield ""


def _best_lines(d: BriefDocument) -> Iterator[str]:
    if d.best is None:
        yield "## No kernel passed yet\n"
        yield (
            f"The task's own kernel:\n\n```python\n{d.seed.strip()}\n```\n"
            if d.seed
            else "There is no seed.\n"
        )
        return
    score = "" if d.best.score is None else f", score {d.best.score:.3f}"
    yield f"## The best so far: {d.best.id}{score}\n"
    if d.best.workloads:
        header = ("workload", "us", "baseline us", "of roofline", "host us")
        rows = [
            (
                w["uuid"], _number(w["median_us"], ".2f"), _number(w["baseline_us"], ".2f"),
                _number(w["roofline_share"], ".0%"), _number(w["host_us"], ".1f"),
            )
            for w in d.best.workloads
        ]  # fmt: skip
        yield markdown_table([header, *rows]) + "\n"
    if d.best.knobs:
        yield "Knobs: " + ", ".join(f"{name}={value}" for name, value in d.best.knobs.items()) + "\n"
    yield f"```python\n{d.best.source.strip()}\n```\n"


def _diagnosis_lines(d: BriefDocument) -> Iterator[str]:
    if d.diagnosis is None:
        return
    yield f"## Profile of {d.diagnosis['candidate']}\n"
    symptoms = ", ".join(d.diagnosis["symptoms"]) or "no symptom"
    yield f"{d.diagnosis['bound']}; {symptoms}. Next edit: {d.diagnosis['next_edit']}\n"
    yield ", ".join(f"{name} {value:.4g}" for name, value in d.diagnosis["metrics"].items()) + "\n"
    if d.diagnosis.get("pipeline"):
        traced = Pipeline.model_validate(d.diagnosis["pipeline"])
        yield trace_line(traced) + "\n\n" + markdown_table(role_rows(traced)) + "\n"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
