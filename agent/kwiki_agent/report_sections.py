"""What a report tells beside its figures: ideas and what came of them, vetoes, troubles, and the cost."""

from __future__ import annotations

from collections.abc import Iterator

from kwiki_kernels.profile.diagnose import Diagnosis
from kwiki_kernels.task import Task

from kwiki_agent.budget import spent
from kwiki_agent.contract import Contract
from kwiki_agent.diagnosis_text import evidence_rows, role_rows, trace_line
from kwiki_agent.policy.accounting import Bill
from kwiki_agent.policy.directions import MAX_TRIES, Ranking, standings
from kwiki_agent.runs import REVIEWS, TROUBLES, RunFolder
from kwiki_agent.table import markdown_table
from kwiki_agent.trials import Trial


def direction_section(run: RunFolder, trials: list[Trial]) -> Iterator[str]:
    """Ranked directions and their drafts; nothing where the run named none."""
    tried = standings(trials)
    why = {direction.name: direction.why for direction in Ranking.load(run).directions}
    names = list(dict.fromkeys([*why, *tried]))
    if not names:
        return
    yield "## Directions\n"
    for name in names:
        standing = tried.get(name)
        if standing is None:
            outcome = "not tried"
        else:
            score = "no score" if standing.best is None else f"best score {standing.best:.3f}"
            outcome = f"{standing.tries} of {MAX_TRIES} tries, {standing.failed} failed, {score}"
        yield _line(f"- **{name}** ({outcome}){': ' + why[name] if name in why else ''}")
    yield ""


def trouble_section(run: RunFolder) -> Iterator[str]:
    """Rounds that brought nothing, and promotions that a reviewer stopped; nothing where there were none."""
    lines = [_line(f"- round {line['round']}: {line['trouble']}") for line in run.lines(TROUBLES)]
    for line in run.lines(REVIEWS):
        if line["veto"]:
            lines.append(
                _line(f"- `{line['candidate']}` was vetoed in round {line['round']}: {line['reason']}")
            )
        elif line["note"]:
            lines.append(_line(f"- the review of `{line['candidate']}` gave {line['note']}"))
    if lines:
        yield "## Vetoes and troubles\n"
        yield "\n".join(lines) + "\n"


def profile_section(run: RunFolder) -> Iterator[str]:
    """What the profilers said of candidates: captures that were put into `profile/<id>/`."""
    folders = sorted(path for path in run.path.glob("profile/*") if path.is_dir())
    if folders:
        yield "## Profiles\n"
    for folder in folders:
        if (said := folder / "diagnosis.json").exists():
            yield from _diagnosis(folder.name, said.read_bytes())
        for picture in sorted(folder.glob("*.svg")):
            yield f"![{folder.name} {picture.stem}]({picture.relative_to(run.path).as_posix()})\n"


def _diagnosis(name: str, text: bytes) -> Iterator[str]:
    try:
        said = Diagnosis.model_validate_json(text)
    except ValueError:
        yield f"`{name}`: its diagnosis.json is not what `kernel-agent profile --json` prints.\n"
        return
    words = [said.bound, *(symptom for symptom in said.symptoms if symptom != said.bound)]
    yield f"`{name}` is {', '.join(words)}. Next edit: {said.next_edit}\n"
    if rows := evidence_rows(said):
        yield markdown_table(rows) + "\n"
    if said.pipeline:
        yield trace_line(said.pipeline) + "\n\n" + markdown_table(role_rows(said.pipeline)) + "\n"


def _line(text: str) -> str:
    """One line, whatever a model wrote into it: no text of its own becomes a heading here."""
    return " ".join(text.split())


def cost_section(run: RunFolder) -> Iterator[str]:
    """Time by what it went into, and tokens and money where models were asked."""
    total = spent(run)
    share = f" ({total.overhead_s / total.wall_s:.1%})" if total.wall_s else ""
    yield "## What it cost\n"
    yield (
        f"Wall time {total.wall_s:.1f} s: {total.waited_s:.1f} s waiting for builds, verdicts and models, "
        f"{total.overhead_s:.1f} s{share} the loop's own. Building and judging: {total.judge_s:.1f} s "
        f"over all candidates, {total.gpu_s:.1f} s of that on a GPU."
    )
    if total.models.messages:
        yield "\n" + _models(total.models, kept=sum(1 for _ in run.lines("promotions.jsonl")))
    yield ""


def _models(models: Bill, kept: int) -> str:
    money = "cost unknown: the price table lacks a model"
    if models.cost_usd is not None:
        each = f", {models.cost_usd / kept:.4f} USD a kept gain" if kept else ""
        money = f"{models.cost_usd:.4f} USD{each}"
    return (
        f"Models: {models.messages} messages in {models.model_s:.1f} s, {models.tokens:,} tokens "
        f"({models.cached_tokens:,} read from the cache, {models.output_tokens:,} written), {money}."
    )


def repeat_options(contract: Contract, task: Task) -> list[str]:
    """What follows `kernel-agent run` to ask for the same again; what stands at its default is left out."""
    every = len(contract.workloads) == len(task.workloads)
    options: dict[str, object] = {
        "--arch": contract.arch,
        "--workloads": "all" if every else ",".join(contract.workloads),
        "--screen": len(contract.representatives) or None,
        "--policy": contract.policy,
        "--candidates": contract.max_candidates,
        "--batch": contract.batch,
        "--seed": contract.seed,
    }
    changed = {
        "--language": "language", "--min-gain": "min_gain", "--stop-at": "stop_at",
        "--max-judge": "max_judge_s", "--max-gpu": "max_gpu_s", "--max-wall": "max_wall_s",
        "--max-tokens": "max_tokens", "--max-cost": "max_cost_usd",
    }  # fmt: skip
    for flag, name in changed.items():
        value = getattr(contract, name)
        options[flag] = None if value == Contract.model_fields[name].default else value
    options["--imports"] = ",".join(contract.allowed_imports) or None
    if contract.model is not None:
        options["--model"], options["--effort"] = contract.model.name, contract.model.effort
        options["--reviewer"] = contract.reviewer.name if contract.reviewer else "none"
    given = [text for flag, value in options.items() if value is not None for text in (flag, str(value))]
    fixed = [text for name, value in contract.fixed_knobs.items() for text in ("--fix", f"{name}={value}")]
    switches = ["--no-cards"] * (not contract.use_cards) + ["--search-only"] * contract.search_only
    return [task.name, *given, *fixed, *switches]
