"""How well the search answers a gold set: each leg alone and both, with intervals over the questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from kwiki_ingest.errors import GoldError
from kwiki_ingest.index.manifest import open_for_reading
from kwiki_ingest.index.model import choose_model
from kwiki_ingest.search.gold import ANSWERS, Question, check_pages
from kwiki_ingest.search.retrieve import SIMILARITY_FLOOR, Hit, Leg, search
from kwiki_ingest.wiki import Wiki

DEPTH = 10
LEG_SETS: Mapping[str, tuple[Leg, ...]] = {
    "keyword": ("keyword",),
    "dense": ("dense",),
    "both": ("keyword", "dense"),
}
RESAMPLES = 10_000
_SEED = 20261130


@dataclass(frozen=True)
class Estimate:
    """A mean over questions with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class LegScore:
    """What one set of legs reached. Shares are None where no question asks for them.

    `declined_*` are the shares of unanswerable and of answerable questions for which no hit is similar
    enough; the first should be high, the second low. The keyword leg knows no similarity and declines only by
    finding nothing. `leaked` is the share of questions about one architecture with another's page among the
    hits. `judged_at_5` is the share of the first five hits that the gold set grades: where it falls, new
    pages wait to be graded, and the other scores are too low.
    """

    ndcg_at_10: Estimate
    recall_at_5: Estimate
    mrr_at_10: Estimate
    judged_at_5: float
    ndcg_by_kind: Mapping[str, float]
    declined_unanswerable: float | None
    declined_answerable: float
    leaked: float | None
    latency_ms_median: float
    latency_ms_p95: float


@dataclass(frozen=True)
class Evaluation:
    """Scores by leg set. `ndcg_gain` holds paired differences of nDCG@10, named `one - other`; `found` the
    page ids by leg set and question, best first."""

    answerable: int
    unanswerable: int
    scores: Mapping[str, LegScore]
    ndcg_gain: Mapping[str, Estimate]
    found: Mapping[str, Mapping[str, list[str]]]


@dataclass(frozen=True)
class _Answers:
    """The hits of one set of legs by question id, and the time that each search took."""

    legs: Sequence[Leg]
    hits: Mapping[str, list[Hit]]
    seconds: Sequence[float]


_PerQuestion = Mapping[str, NDArray[np.float64]]
"""Values by measure, in the order of the answerable questions."""


def evaluate(wiki: Wiki, questions: Sequence[Question], floor: float = SIMILARITY_FLOOR) -> Evaluation:
    """Ask `questions` of every leg that the index has; a hit below `floor` is no answer.

    Raises GoldError when no question is answerable or one grades a page that the index lacks.
    """
    answerable = [question for question in questions if question.answerable]
    if not answerable:
        raise GoldError("None of the questions has an answer, so there is nothing to score; add some.")
    leg_sets = _prepare(wiki, questions)
    answers = {name: _ask(wiki, questions, legs) for name, legs in leg_sets.items()}
    values = {name: _measure(answerable, answer.hits) for name, answer in answers.items()}
    return Evaluation(
        answerable=len(answerable),
        unanswerable=len(questions) - len(answerable),
        scores={name: _score(questions, answers[name], values[name], floor) for name in leg_sets},
        ndcg_gain={
            f"{later} - {earlier}": _estimate(values[later]["nDCG@10"] - values[earlier]["nDCG@10"])
            for earlier, later in combinations(leg_sets, 2)
        },
        found={
            name: {question: [hit.page_id for hit in hits] for question, hits in answer.hits.items()}
            for name, answer in answers.items()
        },
    )


def _prepare(wiki: Wiki, questions: Sequence[Question]) -> Mapping[str, tuple[Leg, ...]]:
    """The leg sets that this index can answer with, after a look at the questions' pages."""
    with open_for_reading(wiki.index_dir) as manifest:
        meta = manifest.meta()
        check_pages(questions, set(manifest.pages()))
    model = choose_model(meta)
    dense = model.embeds and meta["model"] == model.identity
    return LEG_SETS if dense else {"keyword": LEG_SETS["keyword"]}


def _ask(wiki: Wiki, questions: Sequence[Question], legs: Sequence[Leg]) -> _Answers:
    search(wiki, questions[0].question, legs=legs)  # the first one also pays for reading files from disk
    hits, seconds = {}, []
    for question in questions:
        start = time.perf_counter()
        hits[question.id] = search(wiki, question.question, arch=question.arch, k=DEPTH, legs=legs)
        seconds.append(time.perf_counter() - start)
    return _Answers(legs, hits, seconds)


def _measure(questions: Sequence[Question], hits: Mapping[str, list[Hit]]) -> _PerQuestion:
    import ir_measures
    from ir_measures import RR, Judged, R, nDCG

    measures = {
        "nDCG@10": nDCG @ 10,
        "R@5": R(rel=ANSWERS) @ 5,
        "RR@10": RR(rel=ANSWERS) @ 10,
        "Judged@5": Judged @ 5,
    }
    grades = {question.id: dict(question.relevant) for question in questions}
    # Ranks as scores: equal scores have been put in order by the search, and must stay so.
    run = {
        question.id: {hit.page_id: float(DEPTH - rank) for rank, hit in enumerate(hits[question.id])}
        for question in questions
        if hits[question.id]
    }
    found = {(m.query_id, m.measure): m.value for m in ir_measures.iter_calc(measures.values(), grades, run)}
    # What was answered with nothing scores nothing.
    return {
        name: np.array([found.get((question.id, measure), 0.0) for question in questions])
        for name, measure in measures.items()
    }


def _score(questions: Sequence[Question], answers: _Answers, values: _PerQuestion, floor: float) -> LegScore:
    answerable = [question for question in questions if question.answerable]
    ndcg = values["nDCG@10"]
    kinds = sorted({question.kind for question in answerable})
    by_kind = {kind: ndcg[[question.kind == kind for question in answerable]].mean() for kind in kinds}
    milliseconds = np.array(answers.seconds) * 1000

    def declined(question: Question) -> bool:
        hits = answers.hits[question.id]
        if "dense" in answers.legs:
            return not any(hit.similarity is not None and hit.similarity >= floor for hit in hits)
        return not hits

    def leaked(question: Question) -> bool:
        return not all({question.arch, "any"} & set(hit.arch) for hit in answers.hits[question.id])

    return LegScore(
        ndcg_at_10=_estimate(ndcg),
        recall_at_5=_estimate(values["R@5"]),
        mrr_at_10=_estimate(values["RR@10"]),
        judged_at_5=float(values["Judged@5"].mean()),
        ndcg_by_kind={kind: float(mean) for kind, mean in by_kind.items()},
        declined_unanswerable=_share(declined, [q for q in questions if not q.answerable]),
        declined_answerable=_share(declined, answerable) or 0.0,
        leaked=_share(leaked, [q for q in questions if q.arch not in (None, "any")]),
        latency_ms_median=float(np.median(milliseconds)),
        latency_ms_p95=float(np.percentile(milliseconds, 95)),
    )


def _share(holds: Callable[[Question], bool], questions: Sequence[Question]) -> float | None:
    return fmean(map(holds, questions)) if questions else None


def _estimate(values: NDArray[np.float64]) -> Estimate:
    """Resamples the questions; always the same draws, so that equal runs print equal intervals."""
    draws = np.random.default_rng(_SEED).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return Estimate(float(values.mean()), float(low), float(high))
