"""What a model is told: the part that never changes, the part of the run, the part of the round.

In this order, so that the server's cache holds the longest common start of all requests of a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kwiki_ingest.quoting import NOTE, as_data
from kwiki_kernels.task import Task

from kwiki_agent.contract import Contract
from kwiki_agent.policy import STALLED_BEFORE_NEW_DIRECTION, Brief
from kwiki_agent.policy.answers import code_text
from kwiki_agent.policy.directions import MAX_TRIES, Ranking, standings
from kwiki_agent.runs import RunFolder
from kwiki_agent.state import Card
from kwiki_agent.trials import Trial

Block = dict[str, Any]

MAX_TRIALS_SHOWN = 20
MAX_FAILURES_SHOWN = 3
MAX_LOG_CHARS = 1_500
MAX_REFERENCE_CHARS = 12_000

INSTRUCTIONS = f"""\
You write GPU kernels and make them faster, measured by a judge that you cannot influence.

How a round goes: read the brief. Look up what you do not know: the wiki with search_wiki and read_page,
names of the installed DSL with lookup_api before you use them, numbers with hardware, earlier results
with read_profile. Rank directions with rank_directions before you write code: each is an idea with the
reason why it should help here. Then submit kernels with submit_candidate, each one draft of one
direction. trial_compile says whether a kernel builds. When you have nothing more to submit in this
round, end your turn. A kernel in prose is not read.

Rules that code enforces: a direction gets {MAX_TRIES} drafts, and one that failed may deserve a second.
After {STALLED_BEFORE_NEW_DIRECTION} rounds without a promotion only new directions are taken. The same
code with the same knobs is taken once. Host code around the kernel may allocate, pack arguments and
launch, and computes nothing. A candidate is promoted when it is right on every workload and faster
outside the noise.

A kernel is one Python module in CuTe-DSL or Triton. In CuTe-DSL it defines `build(axes, knobs) ->
launch`: `build` compiles from fake tensors for the architecture in CUTE_DSL_ARCH, without a GPU; `axes`
holds the axes named in the module's `STATIC_AXES` (a tuple; all axes without it), and one binary serves
all workloads that agree in them; `launch(*inputs, *outputs)` runs on torch's current stream and can be
captured in a CUDA graph; `launch.compiled` is a tuple of objects whose `__cubin__` is the binary. In
Triton it defines `run(*inputs, *outputs)`. Inputs and outputs come in the definition's order, scalars as
Python numbers. torch may allocate and describe tensors and compute nothing; exceptions are not caught;
nothing is read or imported beside the languages and small parts of the standard library. A seed in the
contract shows the form. State in `cards` the pages that led to a candidate, and no others.

{NOTE}"""


def system_blocks(contract: Contract, task: Task) -> list[Block]:
    """What holds for the whole run; the server may cache it."""
    return [_text(INSTRUCTIONS), _text("\n\n".join(_contract(contract, task)), cached=True)]


def opening(brief: Brief, run: RunFolder, room: int) -> Block:
    """The first message of a round: the cards, which change seldom, then where the search stands."""
    cards = "\n\n".join(map(_card, brief.cards))
    return {
        "role": "user",
        "content": [
            _text(f"Pages that fit this stage:\n\n{cards or 'none'}", cached=True),
            _text("\n\n".join(_round(brief, run, room))),
        ],
    }


def _contract(contract: Contract, task: Task) -> Iterator[str]:
    limits = {
        "language": contract.language, "imports": list(contract.allowed_imports) or "what the audit allows",
        "candidates": contract.max_candidates, "candidates a round": contract.batch,
        "fixed knobs": contract.fixed_knobs, "promotion": f"more than {contract.min_gain:.1%} faster",
    }  # fmt: skip
    workloads = [
        {"uuid": uuid, **task.definition.axis_values(task.workload(uuid).axes)} for uuid in contract.workloads
    ]
    yield (
        f"# Contract\nMake {task.name} fast on {contract.arch}. The objective is the geometric mean, over "
        "all workloads, of the baseline's time over yours."
    )
    yield f"Limits: {json.dumps(limits)}"
    yield f"Definition: {task.definition.model_dump_json(exclude_none=True)}"
    yield "Workloads:\n" + "\n".join(map(json.dumps, workloads))
    yield as_data(task.reference[:MAX_REFERENCE_CHARS], "reference")
    if "baseline" in task.baselines:
        yield as_data(task.baselines["baseline"], "baseline")
    if task.knob_space:
        yield f"Knobs of the seed: {task.knob_space.model_dump_json()}"
    if task.has_seed_for(contract.arch):
        yield as_data(task.seed_for(contract.arch), "seed kernel")


def _round(brief: Brief, run: RunFolder, room: int) -> Iterator[str]:
    trials = list(brief.trials)
    yield f"# Round {brief.round + 1}\nThis round takes up to {room} candidates."
    leader = next((trial for trial in trials if trial.candidate.id == brief.incumbent), None)
    if leader:
        score = "not measured" if leader.score is None else f"score {leader.score:.4f}"
        yield f"The leader is {leader.candidate.id}, {score}."
        yield code_text(leader.candidate, brief.task)
    if brief.stalled >= STALLED_BEFORE_NEW_DIRECTION:
        yield f"{brief.stalled} rounds brought no promotion: only directions not tried yet are taken."
    if ranked := list(_directions(trials, run)):
        yield "Directions, as ranked:\n" + "\n".join(ranked)
    if trials:
        yield "Tried so far:\n" + "\n".join(map(_trial, trials[-MAX_TRIALS_SHOWN:]))
    for trial in [trial for trial in trials if trial.failed][-MAX_FAILURES_SHOWN:]:
        log = as_data(trial.log[-MAX_LOG_CHARS:], f"log of {trial.candidate.id}")
        yield f"{trial.candidate.id} ended {trial.status}:\n{log}"
    if diagnosis := list(run.lines("diagnoses.jsonl"))[-1:]:
        latest = diagnosis[0]
        yield f"The last diagnosis, of {latest['candidate']}: {latest['bound']}. {latest['next_edit']}"


def _card(card: Card) -> str:
    """A page with its standing, and what it advises on knobs."""
    advice = (
        f"{knob['name']} {knob['op']} {knob['value']}" + (f" where {knob['when']}" if knob["when"] else "")
        for knob in card["knobs"]
    )
    head = f"{card['title']} ({card['status']}, {card['confidence']})"
    return as_data("\n".join([head, card["text"], *advice]), f"wiki {card['id']}")


def _directions(trials: list[Trial], run: RunFolder) -> Iterator[str]:
    tried = standings(trials)
    for direction in Ranking.load(run).directions:
        standing = tried.get(direction.name)
        tries = (
            f"{standing.tries} of {MAX_TRIES} tries, {standing.failed} failed" if standing else "not tried"
        )
        best = f", best score {standing.best:.4f}" if standing and standing.best is not None else ""
        yield f"- {direction.name}: {direction.why} ({tries}{best})"


def _trial(trial: Trial) -> str:
    score = "-" if trial.score is None else f"{trial.score:.4f}"
    kind = "" if trial.kind == "measured" else ", not measured"
    idea = f" [{trial.candidate.direction}]" if trial.candidate.direction else ""
    return f"- {trial.candidate.id}{idea} {trial.status} score {score}{kind}: {trial.candidate.intent}"


def _text(text: str, *, cached: bool = False) -> Block:
    block: Block = {"type": "text", "text": text}
    return {**block, "cache_control": {"type": "ephemeral"}} if cached else block
