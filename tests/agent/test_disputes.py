"""A run decides what lessons dispute: both settings are measured side by side in its ablation."""

from __future__ import annotations

from pathlib import Path

from kwiki_agent.graph import drive
from kwiki_agent.trials import history
from kwiki_ingest.index.sync import sync
from kwiki_ingest.lessons.disputes import open_disputes

from tests.agent.toy import MakeLoop

LESSON = """---
id: {id}
title: depth {chosen} over depth {rejected}
type: lesson
arch: [sm_90a]
dtype: [float32]
op: rmsnorm
tags: [tuning]
knobs: [{{name: depth, op: ==, value: {chosen}, when: 64 <= n <= 1024}}]
status: disputed
contradicts: [{other}]
created: 2026-11-30
last_verified: 2026-11-30
kind: tuning
technique: depth
claim: It runs faster with depth={chosen} than with depth={rejected}, where 64 <= n <= 1024.
confidence: experimental
---
Words.
"""


def add_dispute(root: Path) -> None:
    for name, other, chosen, rejected in (("shallow", "deep", 1, 8), ("deep", "shallow", 8, 1)):
        text = LESSON.format(id=name, other=other, chosen=chosen, rejected=rejected)
        (root / "lessons" / f"{name}.md").write_text(text)


def test_a_dispute_is_found_by_operator_and_architecture(make_toy_loop: MakeLoop) -> None:
    wiki = make_toy_loop().wiki
    add_dispute(wiki.root)
    assert sync(wiki).problems == ()
    (dispute,) = open_disputes(wiki, arch="sm_90a", op="rmsnorm")
    assert dispute.pages == ("deep", "shallow")
    assert dispute.settings == ({"depth": 8}, {"depth": 1})
    assert open_disputes(wiki, arch="sm_100a", op="rmsnorm") == []
    assert open_disputes(wiki, arch="sm_90a", op="softmax") == []


def test_the_ablation_measures_both_sides_of_a_dispute_beside_the_best(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(workloads=("n64", "n1024"), max_candidates=4)
    add_dispute(loop.wiki.root)
    sync(loop.wiki)
    drive(loop)
    decided = [t for t in history(loop.run) if t.candidate.intent == "decide between deep and shallow"]
    assert decided, "a side that neither the search nor a step from the best had tried"
    best = {t.candidate.id: t.candidate.knobs for t in history(loop.run)}[decided[0].candidate.parent or ""]
    for trial in decided:
        assert trial.candidate.knobs == {**best, "depth": trial.candidate.knobs["depth"]}
        assert trial.candidate.cards == ("deep", "shallow")
    tried = [t.candidate.knobs for t in history(loop.run)]
    assert {**best, "depth": 1} in tried
    assert {**best, "depth": 8} in tried
