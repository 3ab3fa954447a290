"""The agent's runs as tools of the wiki's MCP server. Imports nothing heavy until a tool is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from kwiki_ingest.errors import WikiError
from kwiki_ingest.mcp.door import Door
from kwiki_kernels.errors import JudgeError
from pydantic import BaseModel, Field

from kwiki_agent.contract import AgentError

if TYPE_CHECKING:
    from kwiki_agent.loop import Loop
    from kwiki_agent.runs import RunFolder

RUNS_VARIABLE = "KERNEL_RUNS"
"""Names the folder of runs; without it, `runs` where the server was started. No caller can name another."""

RunId = Annotated[str, Field(description="as run_status lists it", max_length=200)]


class KernelText(BaseModel):
    """One kernel to judge."""

    source: Annotated[
        str | None, Field(description="the whole Python module; none: the task's own kernel")
    ] = None
    knobs: Annotated[
        dict[str, bool | int | str], Field(description="those that differ from the task's default")
    ] = {}


class RunStatus(BaseModel):
    """Where a run stands."""

    run: str
    task: str
    arch: str
    policy: str
    state: Literal["waits for kernels", "waits for a job", "stopped", "finished"]
    waiting_for: str | None
    """The id of the job, which the machine that the spool folder is for has to judge."""
    candidates: list[dict[str, Any]]
    """id, status, score, intent; scores are speed-ups over the baseline where they were measured."""
    best: str | None
    report: str | None


class Submitted(BaseModel):
    """What became of a submission."""

    candidates: list[str]
    progress: list[str]
    status: RunStatus


def run_doors() -> list[Door]:
    """The tools: status, brief, submit and resume."""
    expected = (AgentError, WikiError, JudgeError)
    return [
        Door(run_status, "Where runs stand", expected),
        Door(run_brief, "What the next kernel's author must know", expected),
        Door(submit_candidate, "Submit kernels", expected, read_only=False, idempotent=False),
        Door(resume_run, "Let a run go on", expected, read_only=False),
    ]


def run_status(
    run: Annotated[str | None, Field(description="none: every run", max_length=200)] = None,
) -> list[RunStatus]:
    """Where one run stands, or each of them, newest first."""
    from kwiki_agent.runs import list_runs

    folder = _runs_dir()
    return [_status(found) for found in ([_open(run)] if run else list_runs(folder))]


def run_brief(run: RunId) -> dict[str, Any]:
    """All that is needed to write the next kernel of a run under the external policy: contract, task,
    reference, the best kernel so far, what failed and why, profile, pages of the wiki, and the rules.
    """
    from kwiki_agent.brief import brief_document
    from kwiki_agent.graph import locate

    loop = _loop(_open(run))
    return brief_document(loop, locate(loop)).model_dump(mode="json")


def submit_candidate(
    run: RunId,
    kernels: Annotated[list[KernelText], Field(description="judged together; none ends the search")],
    intent: Annotated[str, Field(description="what they try, in one sentence", max_length=500)] = "",
    direction: Annotated[str, Field(description="the idea that they are drafts of", max_length=200)] = "",
    cards: Annotated[tuple[str, ...], Field(description="ids of the pages that led to them")] = (),
    parent: Annotated[str | None, Field(description="the candidate they start from; none: the best")] = None,
) -> Submitted:
    """Hand kernels to a run that waits for them, and let it go on: they are compiled, checked and timed.

    It answers when the run waits again, which may take minutes, or says what is wrong with the kernels.
    """
    from kwiki_agent.driving import locked
    from kwiki_agent.hand_in import hand_in, knobs_of
    from kwiki_agent.submission import Draft

    folder = _open(run)
    with locked(folder):
        loop = _loop(folder)
        drafts = [
            Draft(
                name=f"kernel {number}",
                source=kernel.source or loop.task.seed_for(loop.contract.arch),
                knobs=knobs_of(loop, kernel.knobs),
                intent=intent,
                direction=direction,
                cards=cards,
                parent=parent,
            )
            for number, kernel in enumerate(kernels, start=1)
        ]
        taken = [candidate.id for candidate in hand_in(loop, drafts)]
        return Submitted(candidates=taken, progress=_drive(folder), status=_status(folder))


def resume_run(run: RunId) -> Submitted:
    """Let a run go on that was stopped, or whose job has been judged in the meantime."""
    from kwiki_agent.driving import locked

    folder = _open(run)
    with locked(folder):
        return Submitted(candidates=[], progress=_drive(folder), status=_status(folder))


def _runs_dir() -> Path:
    return Path(os.environ.get(RUNS_VARIABLE, "runs"))


def _open(run: str) -> RunFolder:
    from kwiki_agent.runs import open_run

    if Path(run).name != run:
        raise AgentError(f"'{run}' is no name of a run: run_status lists them")
    return open_run(_runs_dir(), run)


def _loop(run: RunFolder) -> Loop:
    from kwiki_agent.start import make_loop

    return make_loop(run, say=lambda _: None)


def _drive(run: RunFolder) -> list[str]:
    """Let the run go on until it waits or is finished; the lines that a person would have seen."""
    from kwiki_agent.graph import drive
    from kwiki_agent.start import make_loop

    lines: list[str] = []
    drive(make_loop(run, lines.append))
    return lines


def _status(run: RunFolder) -> RunStatus:
    from kwiki_agent.graph import locate
    from kwiki_agent.policy.external import SUBMISSION
    from kwiki_agent.trials import history

    position = locate(_loop(run))
    contract = run.contract
    waits = position.waiting_for
    report = run.path / "report.md"
    return RunStatus(
        run=run.id,
        task=contract.task_name,
        arch=contract.arch,
        policy=contract.policy,
        state="finished"
        if position.finished
        else "waits for kernels"
        if waits == SUBMISSION
        else "waits for a job"
        if waits
        else "stopped",
        waiting_for=waits if waits != SUBMISSION else None,
        candidates=[
            {"id": t.candidate.id, "status": t.status, "score": t.score, "intent": t.candidate.intent}
            for t in history(run)
        ],
        best=position.state.get("incumbent"),
        report=str(report) if report.exists() else None,
    )
