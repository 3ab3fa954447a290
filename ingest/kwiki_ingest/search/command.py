"""`wiki eval`: its options and what it prints."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kwiki_ingest.wiki import open_wiki

if TYPE_CHECKING:
    from kwiki_ingest.search.evaluate import Estimate, Evaluation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `wiki eval`."""
    parser.description = (
        "Ask every question of a gold set and score the pages found: the keyword leg, the dense leg and "
        "both, with 95 % bootstrap intervals over the questions."
    )
    parser.add_argument("gold", type=Path, metavar="GOLD", help="a JSONL file of graded questions")
    parser.add_argument("--split", choices=("dev", "test", "all"), default="all", help="(default: all)")
    parser.add_argument(
        "--floor",
        type=float,
        metavar="COSINE",
        help="a hit less similar is no answer (default: the search's)",
    )
    parser.set_defaults(run=_eval)


def _eval(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from kwiki_ingest.index.freshness import stale_reason
    from kwiki_ingest.search.evaluate import evaluate
    from kwiki_ingest.search.gold import load_gold
    from kwiki_ingest.search.retrieve import SIMILARITY_FLOOR

    wiki = open_wiki(args.wiki)
    questions = [q for q in load_gold(args.gold) if args.split in ("all", q.split)]
    evaluation = evaluate(wiki, questions, SIMILARITY_FLOOR if args.floor is None else args.floor)
    stale = stale_reason(wiki)
    if stale:
        print(stale, file=sys.stderr)
    if args.json:
        print(json.dumps({"split": args.split, **asdict(evaluation)}, indent=2))
    else:
        print(_table(evaluation))
    return 0


def _table(evaluation: Evaluation) -> str:
    scores = evaluation.scores
    rows = [
        ("", list(scores)),
        ("nDCG@10", [_interval(score.ndcg_at_10) for score in scores.values()]),
        ("Recall@5", [_interval(score.recall_at_5) for score in scores.values()]),
        ("MRR@10", [_interval(score.mrr_at_10) for score in scores.values()]),
        *(
            (f"nDCG@10 {kind}", [f"{score.ndcg_by_kind[kind]:.3f}" for score in scores.values()])
            for kind in next(iter(scores.values())).ndcg_by_kind
        ),
        ("graded, first five", [_percent(score.judged_at_5) for score in scores.values()]),
        ("declined, unanswerable", [_percent(score.declined_unanswerable) for score in scores.values()]),
        ("declined, answerable", [_percent(score.declined_answerable) for score in scores.values()]),
        ("other architecture", [_percent(score.leaked) for score in scores.values()]),
        ("median", [f"{score.latency_ms_median:.1f} ms" for score in scores.values()]),
        ("95 %", [f"{score.latency_ms_p95:.1f} ms" for score in scores.values()]),
    ]
    lines = [f"{evaluation.answerable} answerable, {evaluation.unanswerable} unanswerable questions"]
    lines += [f"{name:24}" + "".join(f"{cell:>24}" for cell in cells) for name, cells in rows]
    lines += [f"nDCG@10 {pair}: {_interval(gain, '+')}" for pair, gain in evaluation.ndcg_gain.items()]
    return "\n".join(lines)


def _interval(estimate: Estimate, sign: str = "") -> str:
    low, high = f"{estimate.low:{sign}.3f}", f"{estimate.high:{sign}.3f}"
    return f"{estimate.mean:{sign}.3f} [{low}, {high}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
