"""What a run has spent, and what its contract still allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from kwiki_kernels.evaluation import Record

from kwiki_agent.contract import Contract
from kwiki_agent.digest import build_digest, digests
from kwiki_agent.policy.accounting import Bill, bill
from kwiki_agent.runs import RunFolder

TIMELINE = "timeline.jsonl"
"""In the run folder: a line for each step of the loop, and each wait in one for builds or verdicts."""

Kind = Literal["step", "build", "judge"]


class Spent(Record):
    """Sums over all processes that drove the run. Seconds of `build_s` and `judge_s` count each candidate."""

    judge_s: float = 0.0
    """Building and judging, as the judge says; builds here and builds where the GPU is."""
    gpu_s: float = 0.0
    """Of those, checking and timing on a GPU."""
    wall_s: float = 0.0
    """The steps of the loop, waiting inside them included."""
    waited_s: float = 0.0
    """Of those, waiting for builds, verdicts and models."""
    models: Bill = Bill()

    @property
    def overhead_s(self) -> float:
        """What the loop itself took: retrieval, decisions, records, reports."""
        return max(self.wall_s - self.waited_s, 0.0)


def spent(run: RunFolder) -> Spent:
    """What a run has spent so far."""
    verdicts = [digest for job in run.judged_jobs() for digest in digests(run, job).values()]
    builds = filter(None, (build_digest(run, candidate.id) for candidate in run.candidates()))
    models = bill(run)
    lines = list(run.lines(TIMELINE))
    return Spent(
        judge_s=sum(v.build_s + v.judge_s for v in (*builds, *verdicts)),
        gpu_s=sum(v.judge_s for v in verdicts if v.on_gpu),
        wall_s=sum(line["wall_s"] for line in lines if line["kind"] == "step"),
        waited_s=sum(line["wall_s"] for line in lines if line["kind"] != "step") + models.model_s,
        models=models,
    )


def why_machine_budget_ends(contract: Contract, spent: Spent) -> str | None:
    """Which budget of machine time is used up, which ends a run at once; None where all hold."""
    return _why(
        (contract.max_judge_s, spent.judge_s, "{:.0f} s of building and judging"),
        (contract.max_gpu_s, spent.gpu_s, "{:.0f} s of GPU time"),
        (contract.max_wall_s, spent.wall_s, "{:.0f} s of wall time"),
    )


def why_model_budget_ends(contract: Contract, models: Bill) -> str | None:
    """Which budget of models is used up, which ends a search: confirming its winner asks no model."""
    return _why(
        (contract.max_tokens, models.tokens, "{:,.0f} tokens"),
        (contract.max_cost_usd, models.cost_usd or 0.0, "{:.2f} USD"),
    )


def _why(*limits: tuple[float | None, float, str]) -> str | None:
    for limit, used, words in limits:
        if limit is not None and used >= limit:
            return f"the budget of {words.format(limit)} is spent"
    return None


@contextmanager
def timed(run: RunFolder, kind: Kind, name: str) -> Iterator[None]:
    """Book the time that the block takes, also where it is interrupted."""
    began = time.monotonic()
    try:
        yield
    finally:
        line = {"kind": kind, "name": name, "wall_s": round(time.monotonic() - began, 4)}
        run.add_line(TIMELINE, line)
