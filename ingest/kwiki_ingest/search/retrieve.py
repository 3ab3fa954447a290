"""Questions to pages: filter, ask the keyword and the dense leg, fuse their ranks, show the best chunk."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from kwiki_ingest.errors import WikiIndexError
from kwiki_ingest.index.embedder import Vectors
from kwiki_ingest.index.manifest import Manifest, open_for_reading
from kwiki_ingest.index.model import choose_model
from kwiki_ingest.page import Confidence, Knob, PageType, Status
from kwiki_ingest.search.filters import DEFAULT_STATUSES, Filters, StoredPage
from kwiki_ingest.search.keyword import match_expression
from kwiki_ingest.truth.outcomes import rechecks
from kwiki_ingest.wiki import CHROMA_FAILED, Wiki

Leg = Literal["keyword", "dense"]
Store = Literal["exact", "chroma"]

RRF_K = 60
POOL_CHUNKS = 100
"""Chunks that each leg may contribute; further ones would only add noise to the fused ranks."""
CHROMA_OVERFETCH = 4
SIMILARITY_FLOOR = 0.2
"""Below it MiniLM's cosine is that of unrelated texts, and no answer is better than such a one."""

# Names weigh most: titles and aliases are written to be searched, bodies to be read.
_COLUMN_WEIGHTS = "4.0, 3.0, 2.0, 1.0"

# Breaks near ties only: one rank at the top of a leg is worth 1.6 %.
_CONFIDENCE_PRIOR = {
    Confidence.VERIFIED: 1.0,
    Confidence.MEASURED: 1.0,
    Confidence.SOURCE_REPORTED: 0.995,
    Confidence.INFERRED: 0.99,
    Confidence.EXPERIMENTAL: 0.985,
}
_DISPUTED_PRIOR = 0.985

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hit:
    """A page that answers, with its best chunk.

    `ranks` holds the page's rank per leg that found it, from 1; `similarity` is the cosine of the page's
    nearest chunk where the dense leg found one. `path` is relative to the wiki. `valid_when` and `not_when`
    bound the page's advice, whichever chunk is shown. `needs_recheck` says which of the page's code failed
    when `wiki verify` last tried it.
    """

    page_id: str
    title: str
    type: PageType
    arch: tuple[str, ...]
    op: str | None
    status: Status
    confidence: Confidence
    heading: str
    text: str
    path: str
    score: float
    ranks: Mapping[str, int]
    knobs: tuple[Knob, ...]
    similarity: float | None = None
    valid_when: str | None = None
    not_when: str | None = None
    claim: str | None = None
    """What a lesson says; None for reference pages."""
    needs_recheck: str | None = None


@dataclass(frozen=True)
class _Found:
    """A page in one leg's answer: its rank from 1, its best chunk, and that chunk's score in this leg."""

    rank: int
    key: str
    score: float


_Answer = Mapping[str, _Found]
"""One leg's answer, by page id."""


def search(
    wiki: Wiki,
    query: str,
    *,
    arch: str | None = None,
    statuses: Collection[str] = DEFAULT_STATUSES,
    types: Collection[str] | None = None,
    dsl: str | None = None,
    k: int = 5,
    legs: Sequence[Leg] = ("keyword", "dense"),
    store: Store = "exact",
) -> list[Hit]:
    """The `k` best pages for `query`, best first; fewer or none when nothing fits.

    A page fits `arch` when it names it or `any`; `dsl` is a version that the page's range must hold.
    `store` says where the dense leg looks for candidates; both give the same hits. Raises IndexMissingError
    before the first sync.
    """
    with open_for_reading(wiki.index_dir) as manifest:
        expression = match_expression(query)
        pages = Filters(arch, statuses, types, dsl).select(manifest)
        if not expression or not pages:
            return []
        answers: dict[str, _Answer] = {}
        if "keyword" in legs:
            answers["keyword"] = _keyword_leg(manifest, expression, pages)
        if "dense" in legs:
            answers["dense"] = _dense_leg(wiki, manifest, query, pages, store)
        return _with_rechecks(wiki, manifest, _fuse(manifest, answers, pages)[:k])


def by_profile(
    wiki: Wiki,
    metrics: Mapping[str, float],
    arch: str | None = None,
    *,
    symptoms: Collection[str] | None = None,
    k: int = 5,
) -> list[Hit]:
    """Pages whose triggers all hold for the measured `metrics`, those with more triggers first.

    With `symptoms`, a diagnosis of the same metrics, only pages that speak of one of them: a metric may be
    far off and yet not be what bounds the kernel. No leg ranked the hits, so their `ranks` are empty.
    """
    with open_for_reading(wiki.index_dir) as manifest:
        pages = Filters(arch).select(manifest)
        chosen = {}
        for page_id, page in pages.items():
            triggers = page.front.get("triggers", ())
            if symptoms is not None and not set(symptoms) & set(page.front.get("symptoms", ())):
                continue
            if triggers and all(_holds(trigger, metrics) for trigger in triggers):
                chosen[page_id] = len(triggers) * _prior(page)
        hits = [
            _hit(manifest, pages[page_id], f"{page_id}#0", score, {}, None)
            for page_id, score in chosen.items()
        ]
        return _with_rechecks(wiki, manifest, _best_first(hits, pages)[:k])


def _with_rechecks(wiki: Wiki, manifest: Manifest, hits: list[Hit]) -> list[Hit]:
    """The hits, those marked whose code failed; an edit of the page since then lifts the mark."""
    marked = rechecks(wiki)
    indexed = manifest.pages() if marked else {}
    return [
        replace(hit, needs_recheck=mark.reason)
        if (mark := marked.get(hit.page_id)) and mark.content_hash == indexed[hit.page_id][1]
        else hit
        for hit in hits
    ]


def _holds(trigger: Mapping[str, str | float], metrics: Mapping[str, float]) -> bool:
    value = metrics.get(str(trigger["metric"]))
    return value is not None and _COMPARE[str(trigger["op"])](value, float(trigger["value"]))


def _keyword_leg(manifest: Manifest, expression: str, pages: Mapping[str, StoredPage]) -> _Answer:
    rows = manifest.sql.execute(
        f"SELECT c.key, c.page_id, -bm25(keyword, {_COLUMN_WEIGHTS}) AS score"
        " FROM keyword JOIN chunks c ON c.id = keyword.rowid WHERE keyword MATCH ?",
        (expression,),
    )
    return _rank(row for row in rows if row[1] in pages)


def _dense_leg(
    wiki: Wiki, manifest: Manifest, query: str, pages: Mapping[str, StoredPage], store: Store
) -> _Answer:
    meta = manifest.meta()
    model = choose_model(meta)
    if not model.embeds:
        return {}
    if meta["model"] != model.identity:
        _log.warning(
            "The index was made with another model (%s), so only keywords are searched; run `wiki sync`.",
            meta["model"],
        )
        return {}
    vector = model.embedder().encode_query(query)
    candidates = _from_chroma(wiki, manifest, vector, pages) if store == "chroma" else None
    rows = manifest.vectors(pages) if candidates is None else manifest.vectors_of_chunks(candidates)
    if not rows:
        return {}
    matrix = np.frombuffer(b"".join(row[2] for row in rows), np.float32).reshape(len(rows), -1)
    cosines = (matrix @ vector).tolist()
    return _rank(
        (key, page_id, cosine)
        for (key, page_id, _), cosine in zip(rows, cosines, strict=True)
        if cosine >= SIMILARITY_FLOOR
    )


def _rank(rows: Iterable[tuple[str, str, float]]) -> _Answer:
    """Rank pages by their best chunk, from (key, page id, score) of chunks; equal scores share a rank.

    Scores are rounded, so that equal texts tie whatever the order of summation was.
    """
    chunks = sorted((-round(score, 6), key, page_id) for key, page_id, score in rows)[:POOL_CHUNKS]
    answer: dict[str, _Found] = {}
    rank, last = 0, 0.0
    for negated, key, page_id in chunks:
        if page_id not in answer:
            if negated != last:
                rank, last = len(answer) + 1, negated
            answer[page_id] = _Found(rank, key, -negated)
    return answer


def _from_chroma(
    wiki: Wiki, manifest: Manifest, vector: Vectors, pages: Mapping[str, StoredPage]
) -> list[str] | None:
    """Keys of candidate chunks by Chroma, or None where it cannot answer and exact search has to."""
    meta = manifest.meta()
    if meta.get("chroma_revision") != meta["revision"]:
        _log.warning("Chroma lags behind the index, so exact vectors are searched; run `wiki sync`.")
        return None
    from kwiki_ingest.index.chroma import open_chroma

    try:
        with open_chroma(wiki.index_dir) as chroma:
            chroma.check_count(manifest.vector_count())
            return chroma.nearest(vector, CHROMA_OVERFETCH * POOL_CHUNKS, list(pages))
    except WikiIndexError as error:
        _log.warning("%s Exact vectors are searched instead.", error)
        with suppress(OSError):
            (wiki.index_dir / CHROMA_FAILED).touch()
        return None


def _fuse(manifest: Manifest, answers: Mapping[str, _Answer], pages: Mapping[str, StoredPage]) -> list[Hit]:
    """Reciprocal rank fusion of the legs, times a small prior. The leg that ranks higher picks the chunk."""
    hits = []
    for page_id in {page_id for answer in answers.values() for page_id in answer}:
        found = {leg: answer[page_id] for leg, answer in answers.items() if page_id in answer}
        score = sum(1 / (RRF_K + one.rank) for one in found.values()) * _prior(pages[page_id])
        best = min(found.values(), key=lambda one: one.rank)
        dense = found.get("dense")
        hits.append(
            _hit(
                manifest,
                pages[page_id],
                best.key,
                score,
                {leg: one.rank for leg, one in found.items()},
                dense.score if dense else None,
            )
        )
    return _best_first(hits, pages)


def _best_first(hits: list[Hit], pages: Mapping[str, StoredPage]) -> list[Hit]:
    """By score; among equals the one verified last, then by id."""
    hits.sort(key=lambda hit: hit.page_id)
    hits.sort(key=lambda hit: (hit.score, pages[hit.page_id].front["last_verified"]), reverse=True)
    return hits


def _prior(page: StoredPage) -> float:
    disputed = page.front["status"] == Status.DISPUTED
    return _CONFIDENCE_PRIOR[Confidence(page.front["confidence"])] * (_DISPUTED_PRIOR if disputed else 1.0)


def _hit(
    manifest: Manifest,
    page: StoredPage,
    key: str,
    score: float,
    ranks: Mapping[str, int],
    similarity: float | None,
) -> Hit:
    front = page.front
    heading, text = manifest.sql.execute("SELECT heading, text FROM chunks WHERE key = ?", (key,)).fetchone()
    return Hit(
        page_id=front["id"],
        title=front["title"],
        type=PageType(front["type"]),
        arch=tuple(front["arch"]),
        op=front.get("op"),
        status=Status(front["status"]),
        confidence=Confidence(front["confidence"]),
        heading=heading,
        text=text,
        path=page.path,
        score=score,
        ranks=ranks,
        knobs=tuple(Knob.model_validate(knob) for knob in front.get("knobs", ())),
        similarity=similarity,
        valid_when=front.get("valid_when"),
        not_when=front.get("not_when"),
        claim=front.get("claim"),
    )
