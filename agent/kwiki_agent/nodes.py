"""The steps of the loop, one function a node. Each reads the state and the run folder, writes the run
folder, and returns what changed in the state; run twice from the same checkpoint it does the same.
"""

from __future__ import annotations

from kwiki_ingest.lessons.disputes import Dispute, open_disputes
from kwiki_ingest.lessons.ledger import record
from kwiki_ingest.search.retrieve import by_profile, search
from kwiki_kernels.evaluation import Evaluation, Knobs, Status
from kwiki_kernels.profile.diagnose import diagnose

from kwiki_agent.budget import spent
from kwiki_agent.cards import POOL, cards_to_use
from kwiki_agent.decide import Promotion, has_fallen, next_phase, promote, why_search_ends
from kwiki_agent.judging import compile_here, job_id, judge, screen
from kwiki_agent.loop import Loop
from kwiki_agent.policy import Brief, Case, NothingProposedError
from kwiki_agent.profiling import diagnose_batch, diagnose_incumbent
from kwiki_agent.query import query_for
from kwiki_agent.reflect import write_lessons
from kwiki_agent.report import write_report
from kwiki_agent.runs import TROUBLES
from kwiki_agent.state import RunState, Stage
from kwiki_agent.trials import (
    BASELINE,
    Trial,
    best,
    default_candidate,
    default_knobs,
    fastest_by_workload,
    history,
)


def prepare(state: RunState, loop: Loop) -> RunState:
    """Open the books of a new run."""
    loop.say(f"run {loop.run.id}: {loop.task.name} on {loop.contract.arch}")
    return {
        "contract_sha256": loop.run.contract_sha256,
        "phase": "search", "stage": "draft", "round": 0, "known": 0, "searched": 0, "stalled": 0,
    }  # fmt: skip


def retrieve(state: RunState, loop: Loop) -> RunState:
    """Ask the wiki what helps at this stage: by words, and by the incumbent's profile."""
    if not loop.contract.use_cards:
        return {"cards": []}
    metrics = state.get("metrics", {})
    query = query_for(state["stage"], loop.task, metrics)
    hits = search(loop.wiki, query, arch=loop.contract.arch, k=POOL, store="chroma")
    selected = by_profile(loop.wiki, metrics, loop.contract.arch, symptoms=diagnose(metrics).symptoms)
    cards = cards_to_use(
        [*selected, *hits], loop.task, workloads=loop.contract.workloads, knobs=_starting_knobs(state, loop)
    )
    loop.run.append_line(
        "retrievals.jsonl",
        {
            "round": state["round"],
            "stage": state["stage"],
            "query": query,
            "cards": [card["id"] for card in cards],
            "hits": [hit.page_id for hit in hits],
        },
    )
    record(loop.wiki, "retrieved", [card["id"] for card in cards], run=loop.run.id)
    loop.say(f"round {state['round'] + 1}: cards {', '.join(card['id'] for card in cards) or 'none'}")
    return {"cards": cards}


def _starting_knobs(state: RunState, loop: Loop) -> Knobs:
    """Those of the incumbent, or the task's defaults until there is one."""
    if incumbent := state.get("incumbent"):
        return loop.run.candidate(incumbent).knobs
    return default_knobs(loop.contract, loop.task)


def propose(state: RunState, loop: Loop) -> RunState:
    """Let the policy name the next candidates."""
    trouble = ""
    try:
        candidates = loop.policy.propose(brief_of(state, loop))
    except NothingProposedError as error:
        candidates, trouble = [], str(error)
        loop.run.append_line(TROUBLES, {"round": state["round"] + 1, "trouble": trouble})
    for candidate in candidates:
        loop.run.save_candidate(candidate)
    loop.say(f"{state['phase']}: {trouble or f'{len(candidates)} candidates'}")
    return {
        "trouble": trouble,
        "batch": [candidate.id for candidate in candidates],
        "known": state["known"] + len(candidates),
        "searched": state["searched"] + (len(candidates) if state["phase"] == "search" else 0),
        "round": state["round"] + 1,
    }


def brief_of(state: RunState, loop: Loop) -> Brief:
    """What the policy is told before a round."""
    return Brief(
        contract=loop.contract,
        task=loop.task,
        phase=state["phase"],
        round=state["round"],
        trials=tuple(history(loop.run)[: state["known"]]),
        incumbent=state.get("incumbent"),
        cards=tuple(state["cards"]),
        stalled=state["stalled"],
        best_per_workload=fastest_by_workload(loop.run, state.get("incumbent")),
        disputes=_disputes(state, loop),
    )


def _disputes(state: RunState, loop: Loop) -> tuple[Dispute, ...]:
    if state["phase"] != "ablate" or not loop.contract.use_cards:
        return ()
    return tuple(open_disputes(loop.wiki, arch=loop.contract.arch, op=loop.task.definition.op_type))


def build(state: RunState, loop: Loop) -> RunState:
    """Compile the batch here, for the run's architecture: what does not build never reaches a GPU.

    Where this machine measures, its judge builds each kernel before it asks for the GPU; once is enough.
    """
    if loop.builder is loop.executor and loop.executor.measures(loop.contract.arch):
        return {"survivors": state["batch"]}
    verdicts = compile_here(state, loop, state["batch"]) if state["batch"] else []
    survivors = [verdict.candidate_id for verdict in verdicts if verdict.status is Status.UNMEASURED]
    loop.say(f"build: {len(survivors)} of {len(state['batch'])} compiled")
    return {"survivors": survivors}


def check(state: RunState, loop: Loop) -> RunState:
    """Hand the survivors to the executor and wait for the verdicts.

    The incumbent goes with them, so that every comparison is made within one lease. The first job
    also carries the baseline; the last one all baselines and the task's default, who all take turns
    in one lease for the final figures. A spool that has not answered interrupts the graph here;
    `kernel-agent resume` comes back to this line.
    """
    confirming = state["phase"] == "confirm"
    if not loop.executor.measures(loop.contract.arch):
        loop.say(f"check: no GPU for {loop.contract.arch}, nothing is run")
        return {}
    survivors = screen(state, loop, state["survivors"])
    if not survivors and not confirming:
        return {}
    standing = [state.get("incumbent"), default_candidate(loop.run, loop.task) if confirming else None]
    is_first = not any(job != job_id(state, loop, "judge") for job in loop.run.judged_jobs())
    baselines = tuple(loop.task.baselines) if confirming else (BASELINE,) if is_first else ()
    verdicts = judge(state, loop, [*survivors, *filter(None, standing)], baselines=baselines)
    right, unmeasured = (
        sum(verdict.status is status for verdict in verdicts) for status in (Status.PASSED, Status.UNMEASURED)
    )
    loop.say(
        f"check: {right} of {len(verdicts)} right" + (f", {unmeasured} not measured" if unmeasured else "")
    )
    return {"job_id": job_id(state, loop, "judge")}


def measure(state: RunState, loop: Loop) -> RunState:
    """Turn samples into scores, and say where the batch stands."""
    for trial in history(loop.run):
        if trial.candidate.id in state["batch"]:
            score = "-" if trial.score is None else f"{trial.score:.3f}"
            loop.say(f"  {trial.candidate.id} {trial.status} {trial.kind} {score}")
    return {}


def profile(state: RunState, loop: Loop) -> RunState:
    """Say what bounds the batch's best, or the incumbent that stood a round: pages' triggers hear it."""
    trials = [trial for trial in history(loop.run) if trial.candidate.id in state["batch"]]
    found = diagnose_incumbent(state, loop) or diagnose_batch(loop, trials)
    if found is None:
        return {"metrics": {}, "stage": _stage(trials)}
    candidate, diagnosis = found
    line = {"round": state["round"], "candidate": candidate, **diagnosis.model_dump(mode="json")}
    loop.run.append_line("diagnoses.jsonl", line)
    loop.say(f"profile of {candidate}: {diagnosis.bound}. {diagnosis.next_edit}")
    return {"metrics": diagnosis.metrics, "stage": _stage(trials)}


def decide(state: RunState, loop: Loop) -> RunState:
    """Promote by rule, count stalled rounds, choose the next phase or the end."""
    verdicts = loop.run.evaluations(state["job_id"]) if "job_id" in state else {}
    trials = history(loop.run)
    promotion = _promotion(state, loop, verdicts, trials)
    built = state["survivors"] and any(
        trial.candidate.id in state["batch"] and trial.status is not Status.COMPILE_ERROR for trial in trials
    )
    said_something = bool(built or state.get("trouble"))  # what did not build says nothing
    counts = state["phase"] == "search" and said_something
    changed: RunState = {"stalled": 0 if promotion else state["stalled"] + counts}
    if fell := has_fallen(state.get("incumbent"), trials):
        changed["incumbent"] = None
        loop.say(f"decide: {state['incumbent']} was found wrong and leads no more")
    if promotion:
        changed["incumbent"] = promotion.candidate_id
        gain = f" {promotion.ratio.value:.3f}x" if promotion.ratio else ""
        loop.say(f"decide: {promotion.candidate_id} leads{gain}")
        loop.run.append_line(
            "promotions.jsonl",
            {
                "round": state["round"],
                "candidate": promotion.candidate_id,
                "ratio": promotion.ratio.model_dump() if promotion.ratio else None,
            },
        )
    after: RunState = {**state, **changed}
    leader = best(trials)
    used, best_score = spent(loop.run), leader.score if leader else None
    phase, stop = next_phase(loop.contract, after, spent=used, best_score=best_score, fell=fell)
    changed["phase"] = phase
    if phase == "ablate":
        why = why_search_ends(loop.contract, after, spent=used, best_score=best_score)
        changed["search_ended"] = why or ""
    if stop:
        changed["stop"] = stop
        loop.say(f"decide: stop, {stop}")
    return changed


def _promotion(
    state: RunState, loop: Loop, verdicts: dict[str, Evaluation], trials: list[Trial]
) -> Promotion | None:
    """What the rule promotes, past the reviewer; after a veto the next best has its turn."""
    standing = list(state["batch"])
    while promotion := promote(loop.contract, state.get("incumbent"), standing, verdicts, trials):
        if loop.reviewer is None or promotion.candidate_id not in verdicts:
            return promotion
        review = loop.reviewer.review(_case(state, loop, promotion, verdicts), state["round"])
        if not review.veto:
            return promotion
        loop.say(f"decide: {promotion.candidate_id} is vetoed: {review.reason}")
        standing.remove(promotion.candidate_id)
    return None


def _case(state: RunState, loop: Loop, promotion: Promotion, verdicts: dict[str, Evaluation]) -> Case:
    incumbent, arch = state.get("incumbent"), loop.contract.arch
    seed = loop.task.seed_for(arch) if loop.task.has_seed_for(arch) else ""
    before = loop.run.candidate(incumbent).source if incumbent else seed
    return Case(
        candidate=loop.run.candidate(promotion.candidate_id), before=before,
        evaluation=verdicts[promotion.candidate_id], incumbent=verdicts.get(incumbent or ""),
        ratio=promotion.ratio,
    )  # fmt: skip


def reflect(state: RunState, loop: Loop) -> RunState:
    """Propose lessons from measured differences; the wiki's write gate decides."""
    for line in write_lessons(loop.run, loop.task, loop.wiki, state.get("incumbent")):
        loop.say(f"lesson: {line}")
    return {}


def finish(state: RunState, loop: Loop) -> RunState:
    """Write the report."""
    report = write_report(loop.run, loop.task, state)
    loop.say(f"report: {report}")
    return {}


def _stage(trials: list[Trial]) -> Stage:
    """What went wrong most in this round, hence what to ask the wiki next."""
    statuses = [trial.status for trial in trials]
    if statuses and all(status is Status.COMPILE_ERROR for status in statuses):
        return "compile-error"
    if any(status is Status.INCORRECT_NUMERICAL for status in statuses):
        return "wrong-numbers"
    return "too-slow"
