"""The ledger hears what came of the pages: used, helped, hurt, or neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_agent.graph import drive
from kwiki_ingest.index.sync import sync
from kwiki_ingest.lessons.ledger import counts

from tests.agent.claude import claude_loop, rank, served, submit
from tests.agent.toy import MakeLoop

PAGE = """---
id: {id}
title: {title}
type: technique
arch: [any]
dsl: ">=4.8"
tags: [tuning]
confidence: inferred
sources:
  - {{title: Test, url: https://example.com}}
status: confirmed
created: 2026-11-30
last_verified: 2026-11-30
---
## {title}

Words about {title}.
"""


def test_pages_are_credited_by_what_they_led_to(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, _ = claude_loop(make_toy_loop, max_candidates=4, batch=1)
    for name in ("wider", "narrower", "first", "unread"):
        path = Path(loop.wiki.root) / "techniques" / f"{name}.md"
        path.write_text(PAGE.format(id=name, title=f"{name} loads"))
    script = [
        rank("vectors"), submit(4, cards=["first"]), submit(8, cards=["wider"]),
        submit(1, cards=["narrower"]), submit(2),
    ]  # fmt: skip
    with served(script, monkeypatch):
        drive(loop)
    credited = {name: (c.used, c.helped, c.hurt) for name, c in counts(loop.wiki).items()}
    assert credited["wider"] == (1, 1, 0)
    assert credited["narrower"] == (1, 0, 1)
    assert credited["first"] == (1, 0, 0), "it led, and had no rival"
    assert credited.get("unread", (0, 0, 0)) == (0, 0, 0)


def test_the_first_to_lead_helped_where_it_beat_the_default(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop(max_candidates=4, batch=4)
    knobs = "knobs:\n  - {name: width, op: ==, value: 8}\nstatus: confirmed"
    page = PAGE.format(id="wider", title="toy loads").replace("status: confirmed", knobs)
    (Path(loop.wiki.root) / "techniques" / "wider.md").write_text(page)
    sync(loop.wiki)
    drive(loop)
    assert counts(loop.wiki)["wider"].helped == 1
