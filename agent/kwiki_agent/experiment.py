"""Does the wiki help? Pairs of runs: one without lessons, one with the lessons of the first.

Each seed gets a wiki of its own, a copy of the given one. The first run searches, ablates, confirms and
writes its lessons there; the second only searches, with another seed, until it is near enough. What is
counted is how many candidates each needed to come within 5 % of the first run's best score.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kwiki_kernels.evaluation import Record

from kwiki_agent.contract import AgentError
from kwiki_agent.runs import open_run, write_text
from kwiki_agent.trials import Trial, best, history

NEAR_ENOUGH = 0.95
SECOND_SEED_OFFSET = 100


class Pair(Record):
    """One seed's outcome. Trials are counted from 1; None: the run never came that near."""

    seed: int
    first_best: float
    second_best: float | None
    first_trials: int | None
    second_trials: int | None
    lessons: int
    kind: str
    """`measured`, or `static` where there was no GPU: then this is a rehearsal, not a result."""


def run_experiment(
    task: str,
    *,
    wiki: Path,
    folder: Path,
    seeds: Sequence[int],
    options: Sequence[str],
    say: Callable[[str], None],
) -> list[Pair]:
    """Run all pairs side by side, each in processes of its own; the GPU serves one candidate at a time.

    Args:
        options: further arguments of `kernel-agent run`, the same for all runs.

    Raises:
        AgentError: a run failed; what the others found is kept in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=len(seeds)) as pool:
        futures = [pool.submit(_pair, task, wiki, folder, seed, options, say) for seed in seeds]
        pairs = [future.result() for future in futures]
    write_text(folder / "experiment.json", json.dumps([pair.model_dump() for pair in pairs], indent=1) + "\n")
    return pairs


def trials_to_reach(trials: Sequence[Trial], score: float) -> int | None:
    """How many candidates it took until one had at least this score, from 1."""
    return next((i for i, t in enumerate(trials, start=1) if t.score is not None and t.score >= score), None)


def _pair(
    task: str, wiki: Path, folder: Path, seed: int, options: Sequence[str], say: Callable[[str], None]
) -> Pair:
    own_wiki = folder / f"wiki-{seed}"
    if not own_wiki.exists():
        shutil.copytree(wiki, own_wiki)
    first = _run(task, own_wiki, folder, f"first-{seed}", [*options, "--seed", str(seed)])
    leader = best(first)
    if leader is None or leader.score is None:
        raise AgentError(f"no candidate of first-{seed} passed: see {folder}/first-{seed}/report.md")
    goal = NEAR_ENOUGH * leader.score
    near_enough = ["--seed", str(seed + SECOND_SEED_OFFSET), "--search-only", "--stop-at", str(goal)]
    second = _run(task, own_wiki, folder, f"second-{seed}", [*options, *near_enough])
    follower = best(second)
    pair = Pair(
        seed=seed,
        first_best=leader.score,
        second_best=follower.score if follower else None,
        first_trials=trials_to_reach(first, goal),
        second_trials=trials_to_reach(second, goal),
        lessons=len(list(open_run(folder, f"first-{seed}").lines("lessons.jsonl"))),
        kind=leader.kind,
    )
    say(f"seed {seed}: {pair.first_trials} trials without lessons, {pair.second_trials} with {pair.lessons}")
    return pair


def _run(task: str, wiki: Path, folder: Path, run_id: str, options: Sequence[str]) -> list[Trial]:
    """The trials of one run; a run that is there already is only finished."""
    start = ["resume", run_id] if (folder / run_id / "run.json").exists() else ["run", task, "--id", run_id]
    more = [] if start[0] == "resume" else ["--wiki", str(wiki), *options]
    command = [sys.executable, "-m", "kwiki_agent.cli", *start, "--runs", str(folder), "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        )
        raise AgentError(f"run {run_id} failed: {reason}")
    return history(open_run(folder, run_id))
