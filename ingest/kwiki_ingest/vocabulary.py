"""The controlled words of a wiki: `vocabulary.yaml` maps each term to a one-line meaning.

A symptom or metric with a typing error would never be found by the profile that should select the page,
so unknown terms are errors. A wiki without the file has no controlled words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kwiki_ingest.errors import nearest
from kwiki_ingest.frontmatter import parse_yaml
from kwiki_ingest.page import FrontMatter, PageType
from kwiki_ingest.wiki import Wiki

FILE = "vocabulary.yaml"
KINDS = ("symptoms", "tags", "ops", "metrics")


@dataclass(frozen=True)
class Vocabulary:
    """Terms and their meanings by kind; None where the wiki controls no words."""

    terms: Mapping[str, Mapping[str, str]] | None

    def unknown(self, front: FrontMatter) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Location in the front matter and reason, for each term that the vocabulary lacks.

        A lesson's `op` is free: it may come from a task that brings its own operator.
        """
        if self.terms is None:
            return
        used: list[tuple[str, tuple[str | int, ...], str]] = []
        used += [("symptoms", ("symptoms", i), term) for i, term in enumerate(front.symptoms)]
        used += [("tags", ("tags", i), term) for i, term in enumerate(front.tags)]
        used += [("metrics", ("triggers", i, "metric"), t.metric) for i, t in enumerate(front.triggers)]
        if front.op and front.type is not PageType.LESSON:
            used.append(("ops", ("op",), front.op))
        for kind, location, term in used:
            if term not in self.terms[kind]:
                hint = nearest(term, self.terms[kind])
                yield location, f"`{term}` is not one of the {kind} in {FILE}; {hint}"


def load_vocabulary(wiki: Wiki) -> Vocabulary:
    """Read the wiki's vocabulary. Raises PageError where the file breaks the form above."""
    path = wiki.root / FILE
    if not path.exists():
        return Vocabulary(None)
    block = parse_yaml(path.read_text(encoding="utf-8-sig"), FILE)
    terms: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for kind, meanings in block.values.items():
        if kind not in terms:
            raise block.error((kind,), f"`{kind}` is not a kind of term; {nearest(kind, KINDS)}")
        if not isinstance(meanings, dict):
            raise block.error((kind,), f"`{kind}` must map each term to its meaning")
        for term, meaning in meanings.items():
            if not isinstance(meaning, str) or not meaning.strip():
                raise block.error((kind, term), f"`{term}` needs a one-line meaning")
            terms[kind][term] = meaning
    return Vocabulary(terms)
