"""Taking kernels from outside, under the external policy, and telling what an author needs to know."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from kwiki_kernels.evaluation import Knobs
from kwiki_kernels.job import Candidate

from kwiki_agent.brief import brief_document, brief_text
from kwiki_agent.contract import AgentError
from kwiki_agent.driving import drive_and_print, locked
from kwiki_agent.graph import Position, locate
from kwiki_agent.lookup import parse_knobs
from kwiki_agent.loop import Loop
from kwiki_agent.nodes import brief_of
from kwiki_agent.policy import candidate_id
from kwiki_agent.policy.directions import check_direction
from kwiki_agent.policy.external import SUBMISSION, Submission, read_submission, write_submission
from kwiki_agent.runs import RunFolder, open_run
from kwiki_agent.start import make_loop
from kwiki_agent.submission import Draft, check_drafts, read_kernel
from kwiki_agent.trials import default_knobs


def brief(args: argparse.Namespace) -> int:
    """`kernel-agent brief RUN`."""
    loop = make_loop(open_run(args.runs, args.run), say=lambda _: None)
    document = brief_document(loop, locate(loop))
    print(document.model_dump_json(indent=1) if args.json else brief_text(document))
    return 0


def submit(args: argparse.Namespace) -> int:
    """`kernel-agent submit RUN [KERNEL ...]`."""
    run = open_run(args.runs, args.run)
    if args.done and (args.kernel or args.knobs):
        raise AgentError("--done says that nothing more comes: leave the kernels and --knobs out")
    with locked(run):
        loop = make_loop(run, say=lambda _: None)
        drafts = [] if args.done else list(_drafts(args, loop))
        hand_in(loop, drafts)
    return drive_and_print(run, args)


def hand_in(loop: Loop, drafts: Sequence[Draft]) -> list[Candidate]:
    """Take the drafts as the next round's candidates, all of them or none; no drafts end the search.

    Only keeps them: driving the run judges them.

    Raises:
        AgentError: the run waits for no submission, its budget does not hold so many, or a draft is
            refused; one sentence.
        kwiki_ingest.errors.WikiError: a card is no page.
    """
    position = locate(loop)
    round_ = _round_that_waits(loop.run, position)
    contract, told = loop.contract, brief_of(position.state, loop)
    room = min(contract.batch, contract.max_candidates - position.state["searched"])
    if len(drafts) > room:
        raise AgentError(f"{len(drafts)} candidates are too many: run '{loop.run.id}' takes {room} now")
    tried = [trial.candidate for trial in told.trials]
    check_drafts(drafts, tried, task=loop.task, contract=contract, wiki=loop.wiki)
    candidates: list[Candidate] = []
    for number, draft in enumerate(drafts, start=len(tried) + 1):
        check_direction(draft.direction, told, candidates)
        fields = draft.model_dump(include={"intent", "direction", "cards", "source", "knobs"})
        parent = draft.parent or told.incumbent
        candidates.append(
            Candidate(id=candidate_id(number), parent=parent, policy=loop.policy.name, **fields)
        )
    write_submission(loop.run, round_, Submission(candidates=tuple(candidates)))
    return candidates


def _drafts(args: argparse.Namespace, loop: Loop) -> Iterator[Draft]:
    """Every kernel with every set of knobs; without a kernel, the task's own."""
    if not args.kernel and not args.knobs:
        raise AgentError("nothing to submit: give kernel files, --knobs for the task's own kernel, or --done")
    sources = [(path.name, read_kernel(path)) for path in args.kernel] or [
        ("the task's own kernel", loop.task.seed_for(loop.contract.arch))
    ]
    for name, source in sources:
        for point in args.knobs or [""]:
            yield Draft(
                name=f"{name} with {point}" if point else name,
                source=source,
                knobs=knobs_of(loop, _point(loop, point)),
                intent=args.intent or "",
                direction=args.direction,
                cards=tuple(card for card in (args.cards or "").split(",") if card),
                parent=args.parent,
            )


def knobs_of(loop: Loop, asked: Knobs) -> Knobs:
    """The task's default and what the contract fixes, changed by what is asked for."""
    return default_knobs(loop.contract, loop.task) | asked


def _point(loop: Loop, text: str) -> Knobs:
    """`NAME=VALUE,...` as typed on the command line."""
    return parse_knobs(loop.task, [pair.strip() for pair in text.split(",") if pair.strip()])


def _round_that_waits(run: RunFolder, position: Position) -> int:
    """The number of the round that a submission would be for."""
    resume = f"`kernel-agent resume {run.id}`"
    if position.finished:
        raise AgentError(f"run '{run.id}' is finished ({position.state.get('stop')}): start another")
    if run.contract.policy != "external":
        raise AgentError(
            f"run '{run.id}' proposes by itself (policy {run.contract.policy}): {resume} goes on"
        )
    if position.waiting_for is None:
        raise AgentError(
            f"run '{run.id}' was stopped before its {position.next_step or 'first'} step: {resume} goes on"
        )
    if position.waiting_for != SUBMISSION:
        raise AgentError(
            f"run '{run.id}' waits for job {position.waiting_for}: judge it, then {resume}, then submit"
        )
    round_ = position.state["round"] + 1
    if read_submission(run, round_) is not None:
        raise AgentError(f"round {round_} of run '{run.id}' was handed in already: {resume} judges it")
    return round_
