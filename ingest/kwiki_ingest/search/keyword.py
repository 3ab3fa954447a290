"""Words that the keyword leg indexes and asks for.

SQLite's own tokenizers fail on this domain: `.` and `-` are syntax to FTS5, `tcgen05` must find
`cute.nvgpu.tcgen05.mma`, and two Chinese characters find nothing. So text is cut into words here, the same
way for pages and for questions: an identifier whole, its dotted parts, their parts, and CJK bigrams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

MAX_QUERY_TERMS = 128

# Left out of questions: in a small wiki even these tell pages apart, and wrongly. Words that are also
# constructs of the language (`if`, `for`, `while`, `not`) stay in.
_STOP_WORDS = frozenset(
    """
    a an and are as at be by can do does from get has have how i in into is it its my of on or should so than
    that the their them then there these they this to use using was we what when where which why will with
    you your
    """.split()  # noqa: SIM905 (a list of 60 quoted words reads worse)
)

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_RUN = re.compile(rf"(?P<cjk>[{_CJK}]+)|(?P<name>[^\W{_CJK}]+(?:(?:\.|-|:{{1,2}})[^\W{_CJK}]+)*)")
_PART = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+[a-z]*|[^\W_]+")


def words(text: str) -> Iterator[str]:
    """Index terms of `text` in order, lower case, made of letters, digits and `_` only."""
    for run in _RUN.finditer(text):
        if run["cjk"]:
            yield from _bigrams(run["cjk"])
        else:
            yield from dict.fromkeys(_name_parts(run["name"]))


def match_expression(query: str) -> str:
    """An FTS5 expression that finds any telling term of `query`; empty when it has none."""
    terms = [term for term in dict.fromkeys(words(query)) if term not in _STOP_WORDS][:MAX_QUERY_TERMS]
    return " OR ".join(f'"{term}"' for term in terms)


def _bigrams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for first, second in pairwise(run):
        yield first + second


def _name_parts(name: str) -> Iterator[str]:
    dotted = [part for part in re.split(r"[.:\-]+", name) if part.strip("_")]
    if len(dotted) > 1:
        yield "_".join(dotted).lower()
    for component in dotted:
        yield component.lower()
        for part in _PART.findall(component):
            yield part.lower()
            camel = _CAMEL.findall(part) if part.isascii() else ()
            if len(camel) > 1:
                yield from (piece.lower() for piece in camel)
