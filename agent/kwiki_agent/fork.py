"""Time travel: a new run that goes on from where another stood when it had judged a candidate.

The old run stays as it is. The new one takes over what was known then (candidates, verdicts, the state of
the graph) and none of what came after; its budget of time and money starts anew.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract
from kwiki_agent.graph import plant, state_after
from kwiki_agent.runs import RunFolder, create_run, write_text
from kwiki_agent.start import make_loop
from kwiki_agent.state import RunState

KEPT_LINES = {"retrievals.jsonl": -1, "diagnoses.jsonl": 0, "promotions.jsonl": 0, "reviews.jsonl": 0}
"""Records that are taken over, with the offset of their `round` to the number that jobs carry."""


def fork(run: RunFolder, candidate_id: str, *, new_id: str | None, changes: Mapping[str, Any]) -> RunFolder:
    """Make the new run beside the old one; `resume` lets it go on.

    Args:
        new_id: its name; None: the old one's with the candidate's id.
        changes: fields of the contract that differ, such as seed, policy or budget.

    Raises:
        AgentError: the run knows no such candidate or had not judged it, or the name is taken.
    """
    old = make_loop(run, say=lambda _: None)
    if candidate_id not in {candidate.id for candidate in run.candidates()}:
        raise AgentError(
            f"run '{run.id}' has no candidate '{candidate_id}': `kernel-agent report {run.id}` lists them"
        )
    state = state_after(old, candidate_id)
    if state is None:
        raise AgentError(f"run '{run.id}' has not judged {candidate_id} yet: resume it first")
    contract = old.contract.model_dump() | {
        "run_id": new_id or f"{run.id}-from-{candidate_id}",
        "forked_from": f"{run.id}/{candidate_id}",
        "kernel_wiki_version": __version__,
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seed": old.contract.seed + 1,  # the same seed would propose the same again
        **changes,
    }
    new = create_run(run.path.parent, Contract.model_validate(contract))
    _take_over(run, new, state)
    plant(make_loop(new, say=lambda _: None), _renamed(state, run, new))
    return new


def _take_over(old: RunFolder, new: RunFolder, state: RunState) -> None:
    """Copy what was known at that round."""
    known = [candidate.id for candidate in old.candidates()[: state["known"]]]
    for folder in ("candidates", "profile"):
        for candidate_id in known:
            if (old.path / folder / candidate_id).is_dir():
                shutil.copytree(old.path / folder / candidate_id, new.path / folder / candidate_id)
    for job_id in old.judged_jobs():
        if _round_of(job_id) <= state["round"]:
            shutil.copytree(old.path / "jobs" / job_id, new.path / "jobs" / _moved(job_id, old, new))
    for path in old.path.glob("submissions/r*.json"):
        if int(path.stem.removeprefix("r")) <= state["round"]:
            write_text(new.path / "submissions" / path.name, path.read_text(encoding="utf-8"))
    for name, offset in KEPT_LINES.items():
        kept = [line for line in old.lines(name) if line["round"] <= state["round"] + offset]
        if kept:
            write_text(new.path / name, "".join(json.dumps(line) + "\n" for line in kept))
    if (old.path / "directions.json").exists():
        shutil.copy(old.path / "directions.json", new.path)


def _renamed(state: RunState, old: RunFolder, new: RunFolder) -> RunState:
    """The state as it was, of the new run, and going on where the old one may have stopped."""
    renamed: RunState = {**state, "stalled": 0}
    if state["searched"] < new.contract.max_candidates:
        renamed["phase"] = "search"
    renamed.pop("stop", None)
    renamed["contract_sha256"] = new.contract_sha256
    if "job_id" in renamed:
        renamed["job_id"] = _moved(renamed["job_id"], old, new)
    return renamed


def _moved(job_id: str, old: RunFolder, new: RunFolder) -> str:
    return new.id + job_id.removeprefix(old.id)


def _round_of(job_id: str) -> int:
    return int(Path(job_id).stem.rpartition(".r")[2])
