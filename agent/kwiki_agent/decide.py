"""The rules of promotion and of stopping. Code decides; no policy and no model can."""

from __future__ import annotations

from dataclasses import dataclass

from kwiki_kernels.evaluation import Evaluation

from kwiki_agent.budget import Spent, why_machine_budget_ends, why_model_budget_ends
from kwiki_agent.compare import Ratio, compare
from kwiki_agent.contract import Contract
from kwiki_agent.state import Phase, RunState
from kwiki_agent.trials import Trial, best, trial_of

STALLED_BEFORE_STOP = 3


@dataclass(frozen=True)
class Promotion:
    """The new incumbent and the measured ratio that justifies it; no ratio where nothing is measured."""

    candidate_id: str
    ratio: Ratio | None


def promote(contract: Contract, incumbent: str | None, batch: list[str], verdicts: dict[str, Evaluation],
            trials: list[Trial]) -> Promotion | None:  # fmt: skip
    """The candidate of this batch that replaces the incumbent, if one earned it.

    It passed on every workload and is faster than the incumbent, measured in the same job, by more
    than the contract's `min_gain` with the whole 95 % interval above it. Without an incumbent the
    fastest that passed is taken; so it is, of all candidates, where this job found the incumbent wrong.
    Where nothing could be measured, the best static score leads the search, without any claim.
    """
    if has_fallen(incumbent, trials):
        incumbent, batch = None, [trial.candidate.id for trial in trials]
    scored = [trial for trial in trials if trial.candidate.id in batch and trial.score is not None]
    measured = [trial for trial in scored if trial.kind == "measured"]
    if not measured:
        return _lead_by_static_score(incumbent, scored, trials)
    if incumbent is None or incumbent not in verdicts:
        leader = best(measured)
        return Promotion(leader.candidate.id, None) if leader else None
    ratios = [
        ratio
        for trial in measured
        if trial.candidate.id != incumbent
        and trial.candidate.id in verdicts  # and not merely screened
        and (
            ratio := compare(verdicts[incumbent], verdicts[trial.candidate.id], workloads=contract.workloads)
        )
        and ratio.low > 1.0 + contract.min_gain
    ]
    if not ratios:
        return None
    winner = max(ratios, key=lambda ratio: ratio.value)
    return Promotion(winner.after, winner)


def has_fallen(incumbent: str | None, trials: list[Trial]) -> bool:
    """Whether the newest verdict on the incumbent finds it wrong, as a held-out workload may."""
    standing = trial_of(trials, incumbent)
    return standing is not None and standing.failed


def _lead_by_static_score(
    incumbent: str | None, scored: list[Trial], trials: list[Trial]
) -> Promotion | None:
    leader = best(scored)
    standing = trial_of(trials, incumbent)
    if leader is None or leader.score is None:
        return None
    if standing is not None and standing.score is not None and leader.score <= standing.score:
        return None
    return Promotion(leader.candidate.id, None)


def next_phase(
    contract: Contract, state: RunState, *, spent: Spent, best_score: float | None, fell: bool = False
) -> tuple[Phase, str | None]:
    """The phase of the next round, and why the run stops if it does.

    Search until the budget, three stalled rounds or an empty proposal; then ablate around the incumbent
    once; then confirm the winner, dispatched by shape where that pays, beside default and baselines in one
    lease; then stop. Where the confirmation finds the winner wrong, the next best is confirmed.

    Args:
        spent: so far, by all processes that drove the run.
        best_score: of all candidates so far, None where none has one.
        fell: whether this round found the incumbent of before wrong.
    """
    phase = state["phase"]
    if over := why_machine_budget_ends(contract, spent):
        return phase, over
    if phase == "confirm" and fell and state.get("incumbent"):
        return phase, None
    if phase == "confirm":
        return phase, state.get("search_ended") or "the search brought nothing more"
    if phase == "ablate":
        return "confirm", None
    why = why_search_ends(contract, state, spent=spent, best_score=best_score)
    if why is None:
        return "search", None
    nothing_to_confirm = state.get("incumbent") is None
    return ("search", why) if contract.search_only or nothing_to_confirm else ("ablate", None)


def why_search_ends(
    contract: Contract, state: RunState, *, spent: Spent, best_score: float | None
) -> str | None:
    """Why no further round of search follows; None: one does. Arguments as for `next_phase`."""
    if over := why_model_budget_ends(contract, spent.models):
        return over
    if contract.stop_at is not None and best_score is not None and best_score >= contract.stop_at:
        return f"score {contract.stop_at:g} was reached"
    if state["searched"] >= contract.max_candidates:
        return f"the search tried all {contract.max_candidates} candidates of its budget"
    if state["stalled"] >= STALLED_BEFORE_STOP:
        return f"{STALLED_BEFORE_STOP} rounds brought no promotion"
    return None if state["batch"] or state.get("trouble") else "nothing new was proposed"
