"""The tuner: searches the task's typed knobs with Optuna, seeded and steered by retrieved cards.

It needs no model. After the seeds every other candidate moves one knob of the best so far, which is
cheap knowledge and tells the sampler what each knob does; the others are the sampler's own. Cards act in
two ways: what they recommend is tried first, and the values that trusted cards advise against are left
out until the search stalls. Without cards it is the same code on the whole space, hence a fair baseline.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import optuna
from kwiki_ingest.lessons.disputes import Dispute
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Knobs, KnobValue
from kwiki_kernels.job import Candidate
from kwiki_kernels.knobs import KnobSpace, holds

from kwiki_agent.contract import AgentError
from kwiki_agent.policy import STALLED_BEFORE_NEW_DIRECTION, Brief, candidate_id
from kwiki_agent.policy.dispatch import dispatch_by_shape
from kwiki_agent.state import Card, KnobAdvice
from kwiki_agent.trials import best, default_knobs, trial_of

ASKS_PER_CANDIDATE = 60
"""How often Optuna is asked again for a point that is invalid or known before the round ends short."""
REPEATS_BEFORE_RANDOM = 60
"""Known points in a row after which the sampler has converged, and each further one would cost as much."""
FAILED_SCORE = 0.0
"""What the sampler is told of a point that breaks a constraint or failed to build: worse than any kernel."""


class Tuner:
    """Policy over a task's `knobs.json`."""

    name = "tuner"

    def propose(self, brief: Brief) -> list[Candidate]:
        """Candidates of the current phase.

        Raises:
            AgentError: the task has no knobs to search.
        """
        space = brief.task.knob_space
        if space is None:
            raise AgentError(f"task {brief.task.name} has no knobs.json: the tuner has nothing to search")
        match brief.phase:
            case "search":
                return list(_search(brief, _Space(space, brief)))
            case "ablate":
                return list(_ablate(brief, _Space(space, brief)))
            case "confirm":
                dispatch = dispatch_by_shape(brief, self.name)
                return [dispatch] if dispatch else []


class _Proposal(NamedTuple):
    knobs: Knobs
    intent: str
    cards: tuple[str, ...] = ()


class _Space:
    """The valid points of a run: the task's knobs, minus what is fixed, impossible or already tried."""

    def __init__(self, space: KnobSpace, brief: Brief) -> None:
        self.knobs = {
            name: (brief.contract.fixed_knobs[name],) if name in brief.contract.fixed_knobs else spec.values
            for name, spec in space.knobs.items()
        }
        self.default = default_knobs(brief.contract, brief.task)
        self._space = space
        self._axes = [
            brief.task.definition.axis_values(brief.task.workload(uuid).axes)
            for uuid in brief.contract.workloads
        ]
        self._tried = {_key(trial.candidate.knobs) for trial in brief.trials if not trial.candidate.rules}

    def allows(self, settings: Knobs) -> bool:
        """Whether all of these are knobs and values of the run."""
        return all(value in self.knobs.get(name, ()) for name, value in settings.items())

    def is_valid(self, knobs: Knobs) -> bool:
        """Whether the constraints hold on every workload."""
        return all(self._space.valid(knobs, axes) for axes in self._axes)

    def is_new(self, knobs: Knobs) -> bool:
        """Valid and not tried in this run; remembers it as tried."""
        if _key(knobs) in self._tried or not self.is_valid(knobs):
            return False
        self._tried.add(_key(knobs))
        return True

    def advice(self, cards: Iterable[Card]) -> Iterator[tuple[Card, KnobAdvice]]:
        """What cards say about knobs of this task, where it applies to at least half of the workloads."""
        for card in cards:
            for hint in card["knobs"]:
                if hint["name"] in self.knobs and self._applies(hint["when"]):
                    yield card, hint

    def _applies(self, when: str | None) -> bool:
        if when is None:
            return True
        try:
            matching = sum(holds(when, axes) for axes in self._axes)
        except TaskError:
            return False
        return 2 * matching >= len(self._axes)

    def narrowed(self, advice: Iterable[KnobAdvice]) -> dict[str, tuple[KnobValue, ...]]:
        """The knobs with the values left that the advice permits; advice that leaves none is ignored."""
        values = dict(self.knobs)
        for hint in advice:
            if permitted := tuple(value for value in values[hint["name"]] if _permits(hint, value)):
                values[hint["name"]] = permitted
        return values


def _search(brief: Brief, space: _Space) -> Iterator[Candidate]:
    """Seeds, then steps from the best so far and Optuna's points in turn, inside what the cards leave open.

    A stalled search leaves the cards' bounds and the neighbourhood, and explores at random.
    """
    exploring = brief.stalled >= STALLED_BEFORE_NEW_DIRECTION
    advice = list(space.advice(brief.cards))
    bounds = [] if exploring else [(card, hint) for card, hint in advice if _narrows(card, hint)]
    values = space.narrowed(hint for _, hint in bounds)
    cards = tuple(dict.fromkeys(card["id"] for card, _ in bounds))
    number = itertools.count(len(brief.trials) + 1)
    room = max(min(brief.contract.batch, brief.contract.max_candidates - len(brief.trials)), 0)

    seeds = list(itertools.islice(_seeds(space, advice), room))
    leader = best(list(brief.trials))
    start = leader.candidate.knobs if leader else seeds[0].knobs if seeds else space.default
    steps = iter(()) if exploring else _steps(brief, space, start, values)
    rest = (p._replace(cards=cards) for p in _alternate(steps, _ask(brief, space, values, exploring)))
    for proposal in itertools.islice(itertools.chain(seeds, rest), room):
        yield _candidate(brief, next(number), proposal)


def _steps(
    brief: Brief, space: _Space, start: Knobs, values: dict[str, tuple[KnobValue, ...]]
) -> Iterator[_Proposal]:
    """One knob of `start` moved one step, in random order."""
    moves = [(name, knobs) for name, knobs in _neighbours(space, start) if knobs[name] in values[name]]
    random.Random(_seed(brief)).shuffle(moves)
    for name, knobs in moves:
        if space.is_new(knobs):
            yield _Proposal(knobs, f"move {name} of the best so far: {start[name]} to {knobs[name]}")


def _neighbours(space: _Space, knobs: Knobs) -> Iterator[tuple[str, Knobs]]:
    """The points one step away in one knob, with that knob's name."""
    for name, values in space.knobs.items():
        here = values.index(knobs[name])
        for there in (here - 1, here + 1):
            if 0 <= there < len(values):
                yield name, {**knobs, name: values[there]}


def _alternate(one: Iterator[_Proposal], other: Iterator[_Proposal]) -> Iterator[_Proposal]:
    """One of each in turn; what is left of the longer at the end. Draws only what is asked for."""
    for left in one:
        yield left
        if (right := next(other, None)) is not None:
            yield right
    yield from other


def _seeds(space: _Space, advice: list[tuple[Card, KnobAdvice]]) -> Iterator[_Proposal]:
    """What each card recommends, then all cards together, then the task's default.

    A card that sets several knobs for just these shapes, as a lesson on a whole configuration does, is
    tried before one that speaks in general.
    """
    specific = Counter(card["id"] for card, hint in advice if hint["when"] is not None)
    named = dict.fromkeys(card["id"] for card, _ in advice)
    card_ids = tuple(sorted(named, key=lambda name: -specific[name]))
    for chosen in (*((card_id,) for card_id in card_ids), card_ids):
        values = space.narrowed(hint for card, hint in advice if card["id"] in chosen)
        knobs = {
            name: default if default in values[name] else _nearest(default, values[name], space.knobs[name])
            for name, default in space.default.items()
        }
        if chosen and space.is_new(knobs):
            yield _Proposal(knobs, f"what {' and '.join(chosen)} recommends", chosen)
    if space.is_new(space.default):
        yield _Proposal(space.default, "the task's default")


def _ask(
    brief: Brief, space: _Space, values: dict[str, tuple[KnobValue, ...]], exploring: bool
) -> Iterator[_Proposal]:
    """New valid points from Optuna."""
    study = _study(brief, values, exploring)
    intent = "explore at random: the search stalled" if exploring else "sample near what was fast"
    repeats = 0
    for _ in range(ASKS_PER_CANDIDATE * brief.contract.batch):
        if repeats == REPEATS_BEFORE_RANDOM:
            yield from _at_random(brief, space, values)
            return
        trial = study.ask()
        picks = {name: trial.suggest_int(name, 0, len(options) - 1) for name, options in values.items()}
        knobs = {name: values[name][pick] for name, pick in picks.items()}
        if space.is_new(knobs):
            repeats = 0
            yield _Proposal(knobs, intent)
        elif space.is_valid(knobs):
            repeats += 1
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, FAILED_SCORE)


def _at_random(brief: Brief, space: _Space, values: dict[str, tuple[KnobValue, ...]]) -> Iterator[_Proposal]:
    rng = random.Random(_seed(brief))
    for _ in range(ASKS_PER_CANDIDATE * brief.contract.batch):
        knobs = {name: rng.choice(options) for name, options in values.items()}
        if space.is_new(knobs):
            yield _Proposal(knobs, "explore at random: the sampler repeats itself")


def _study(brief: Brief, values: dict[str, tuple[KnobValue, ...]], exploring: bool) -> optuna.Study:
    """A study over `values` that knows the run so far. Rebuilt each round, so resuming changes nothing."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = _seed(brief)
    sampler: optuna.samplers.BaseSampler
    if exploring:
        sampler = optuna.samplers.RandomSampler(seed=seed)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=brief.contract.batch
            )
    study = optuna.create_study(sampler=sampler, direction="maximize")
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.IntDistribution(0, len(options) - 1) for name, options in values.items()
    }
    for trial in brief.trials:
        knobs, score = trial.candidate.knobs, FAILED_SCORE if trial.failed else trial.score
        if trial.candidate.rules or score is None:
            continue
        if all(knobs[name] in options for name, options in values.items()):
            params = {name: options.index(knobs[name]) for name, options in values.items()}
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=distributions, value=score)
            )
    return study


def _ablate(brief: Brief, space: _Space) -> Iterator[Candidate]:
    """The incumbent with one knob moved one step: is each choice really better, and by how much?

    And with the settings of lessons that contradict each other, so that this run decides between them.
    """
    if (standing := trial_of(brief.trials, brief.incumbent)) is None:
        return
    incumbent = standing.candidate
    number = itertools.count(len(brief.trials) + 1)
    for name, knobs in _neighbours(space, incumbent.knobs):
        if space.is_new(knobs):
            intent = f"ablate {name}: {incumbent.knobs[name]} to {knobs[name]}"
            yield _candidate(brief, next(number), _Proposal(knobs, intent))
    for dispute in brief.disputes:
        for settings in dispute.settings:
            knobs = {**incumbent.knobs, **settings}
            if space.allows(settings) and space.is_new(knobs):
                yield _candidate(brief, next(number), _Proposal(knobs, _question(dispute), dispute.pages))


def _question(dispute: Dispute) -> str:
    return f"decide between {' and '.join(dispute.pages)}"


def _candidate(brief: Brief, number: int, proposal: _Proposal) -> Candidate:
    return Candidate(
        id=candidate_id(number),
        parent=brief.incumbent,
        intent=proposal.intent,
        policy=Tuner.name,
        cards=proposal.cards,
        source=brief.task.seed_for(brief.contract.arch),
        knobs=proposal.knobs,
    )


def _seed(brief: Brief) -> int:
    return brief.contract.seed * 1000 + brief.round


def _key(knobs: Knobs) -> tuple[tuple[str, KnobValue], ...]:
    return tuple(sorted(knobs.items()))


def _narrows(card: Card, hint: KnobAdvice) -> bool:
    """Only bounds from pages that stand on more than one unconfirmed claim may close parts of the space."""
    trusted = card["status"] == "confirmed" or card["confidence"] in ("verified", "measured")
    return trusted and hint["op"] != "=="


_PERMITS: dict[str, Callable[[KnobValue, object], bool]] = {
    "==": lambda value, wanted: value == wanted,
    "!=": lambda value, wanted: value != wanted,
    "<=": lambda value, wanted: isinstance(value, int) and isinstance(wanted, int) and value <= wanted,
    ">=": lambda value, wanted: isinstance(value, int) and isinstance(wanted, int) and value >= wanted,
    "in": lambda value, wanted: isinstance(wanted, list) and value in wanted,
}


def _permits(hint: KnobAdvice, value: KnobValue) -> bool:
    return _PERMITS[hint["op"]](value, hint["value"])


def _nearest(
    default: KnobValue, permitted: tuple[KnobValue, ...], ordered: tuple[KnobValue, ...]
) -> KnobValue:
    """The permitted value closest to the default in the knob's own order."""
    here = ordered.index(default)
    return min(permitted, key=lambda value: abs(ordered.index(value) - here))
