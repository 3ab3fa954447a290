"""Rules about what was measured: the evidence exists, and a figure on a page is the figure in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kwiki_ingest.page import Evidence, Lesson, ReferencePage
from kwiki_ingest.truth.book import Book, Finding
from kwiki_ingest.wiki import Wiki

_FIGURE = re.compile(r"(?<![\w.,-])(\d+(?:\.\d+)?) ?(TB/s|GB/s|TFLOP/s|[GM]Hz|[num]s|µs|cycles)(?![\w/])")
# What a figure's unit may be called in the name of a value, and how many of it one of the value's are.
_UNITS: dict[str, dict[str, float]] = {
    "TB/s": {"gbps": 1e-3},
    "GB/s": {"gbps": 1.0},
    "TFLOP/s": {"tflops": 1.0},
    "GHz": {"mhz": 1e-3},
    "MHz": {"mhz": 1.0},
    "ms": {"us": 1e-3, "ms": 1.0},
    "us": {"us": 1.0, "ms": 1e3},
    "µs": {"us": 1.0, "ms": 1e3},
    "ns": {"us": 1e3},
    "cycles": {"cycles": 1.0},
}


def evidence_exists(book: Book) -> Iterator[Finding]:
    """Each run that a page cites has its summary, which names the run, and the code and claims cited."""
    for leaf in book.leaves:
        front = leaf.page.front
        if isinstance(front, Lesson | ReferencePage):
            for position, cited in enumerate(front.evidence):
                reason = _unproven(book.wiki, cited)
                if reason:
                    yield Finding(leaf.path, leaf.line_of("evidence", position), "evidence", "error", reason)


def cited_figures(book: Book) -> Iterator[Finding]:
    """A line that names a measured claim repeats its figures, rounded to the digits shown."""
    for leaf in book.leaves:
        front = leaf.page.front
        if not isinstance(front, ReferencePage) or not front.evidence:
            continue
        values = {claim: found for cited in front.evidence for claim, found in _values(book.wiki, cited)}
        for number, line in enumerate(leaf.source.text.split("\n"), 1):
            claims = [claim for claim in values if f"`{claim}`" in line]
            known = [value for claim in claims for value in values[claim]]
            for figure in _FIGURE.finditer(line) if claims else ():
                if not any(_is_rounded(figure[1], figure[2], name, value) for name, value in known):
                    message = f"`{figure[0]}` is no figure of {', '.join(claims)}; repeat the evidence's"
                    yield Finding(leaf.path, number, "evidence", "error", message)


def _is_rounded(shown: str, unit: str, name: str, value: float) -> bool:
    """Whether `shown`, in `unit`, is the value called `name`, rounded."""
    decimals = len(shown.partition(".")[2])
    scales = (scale for word, scale in _UNITS[unit].items() if word in name.split("_"))
    return any(abs(value * scale - float(shown)) <= 0.5001 * 10**-decimals for scale in scales)


def _values(wiki: Wiki, cited: Evidence) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Each cited claim with the names and figures of its values: medians and percentiles."""
    try:
        summary = _summary(wiki, cited.run)
    except (OSError, ValueError):  # `evidence_exists` says so
        return
    measurements = summary.get("measurements", []) if isinstance(summary, dict) else []
    for claim in cited.claims:
        found = [m["values"] for m in measurements if m["claim"] == claim]
        yield (
            claim,
            [(name, v) for values in found for name, spread in values.items() for v in spread.values()],
        )


def _unproven(wiki: Wiki, cited: Evidence) -> str | None:
    run = cited.run
    try:
        summary = _summary(wiki, run)
    except OSError:
        return f"the run `{run}` has no evidence/{run}.json; bring its summary or drop the claim"
    except ValueError:
        return f"evidence/{run}.json is not JSON; bring the summary of the run again"
    if not isinstance(summary, dict) or summary.get("run") != run:
        return f"evidence/{run}.json is not the summary of the run `{run}`; bring the right one"
    text = json.dumps(summary)
    unnamed = [hash_ for hash_ in cited.candidates if json.dumps(hash_) not in text]
    if unnamed:
        return f"evidence/{run}.json does not name the candidate {unnamed[0]}; bring the right summary"
    measured = {measurement["claim"] for measurement in summary.get("measurements", ())}
    unmeasured = [claim for claim in cited.claims if claim not in measured]
    if unmeasured:
        known = ", ".join(sorted(measured)) or "no claims"
        return f"evidence/{run}.json measures no `{unmeasured[0]}`; it has {known}"
    return None


def _summary(wiki: Wiki, run: str) -> Any:
    return json.loads((wiki.root / "evidence" / f"{run}.json").read_text(encoding="utf-8"))
