"""Print the table of all claims: question, figures, and the pages of the wiki that use them.

`docs/experiments.md` ends with it. Figures are medians; the evidence has their spread and all parameters.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from run_all import EXPERIMENTS

ROOT = Path(__file__).parent.parent.parent
MOST_FIGURES = 8
_CITED = re.compile(r"\{run: ([\w.-]+), claims: \[([^\]]*)\]\}")


def main() -> None:
    print(table(ROOT / "wiki"))


def table(wiki: Path) -> str:
    """A section for each experiment with evidence in `wiki`, and one for claims not measured yet."""
    pages = citing_pages(wiki)
    kept = [json.loads(path.read_text()) for path in sorted((wiki / "evidence").glob("*.json"))]
    evidence = [summary for summary in kept if "measurements" in summary]
    measured = {m["claim"] for summary in evidence for m in summary["measurements"]}
    return "\n\n".join([*(section(summary, pages) for summary in evidence), *waiting(measured)])


def waiting(measured: set[str]) -> list[str]:
    """A section of the claims that have a program and no figures yet, if there are any."""
    rows = [
        f"| `{claim}` | {question} | `{name}.py` |"
        for name in EXPERIMENTS
        for claim, question in importlib.import_module(name).CLAIMS.items()
        if claim not in measured
    ]
    header = ["### Not yet run", "", "| claim | question | experiment |", "|---|---|---|"]
    return ["\n".join([*header, *rows])] if rows else []


def section(summary: dict[str, Any], pages: dict[str, list[str]]) -> str:
    """The claims of one experiment."""
    claims: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for measurement in summary["measurements"]:
        claims[measurement["claim"]].append(measurement)
    rows = [
        f"| `{claim}` | {found[0]['question']} | {figures(found)} | {', '.join(pages.get(claim, []))} |"
        for claim, found in claims.items()
    ]
    source = f"`kernels/experiments/{summary['experiment']}.py`"
    if "source_commit" in summary:
        source += f" as of {summary['source_commit']}"
    notes = [f"\n{' '.join(summary['notes'])}"] if "notes" in summary else []
    return "\n".join(
        [
            f"### {summary['experiment'].replace('_', ' ')}",
            "",
            f"{source}, `wiki/evidence/{summary['run']}.json`",
            *notes,
            "",
            "| claim | question | figures | pages |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def figures(measurements: list[dict[str, Any]]) -> str:
    """The first value of each measurement beside the parameters that differ; the first few of many."""
    parameters = [measurement["parameters"] for measurement in measurements]
    keys = [key for key in parameters[0] if len({json.dumps(p.get(key)) for p in parameters}) > 1][:2]
    shown = []
    for measurement in measurements[:MOST_FIGURES]:
        ((name, spread), *_) = measurement["values"].items()
        setting = ", ".join(f"{_words(key)} {_plain(measurement['parameters'].get(key))}" for key in keys)
        shown.append(f"{setting}: {spread['median']:.4g}" if setting else f"{spread['median']:.4g}")
    more = "; ..." if len(measurements) > MOST_FIGURES else ""
    return f"{'; '.join(shown)}{more} ({_words(name)})"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: object) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)


def citing_pages(wiki: Path) -> dict[str, list[str]]:
    """Claims to the ids of the pages that cite them."""
    pages: dict[str, list[str]] = defaultdict(list)
    for path in sorted(wiki.rglob("*.md")):
        front = path.read_text().split("\n---\n", 1)[0]
        for _, claims in _CITED.findall(front):
            for claim in filter(None, map(str.strip, claims.split(","))):
                pages[claim].append(path.stem)
    return pages


if __name__ == "__main__":
    main()
