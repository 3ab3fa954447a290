"""What can go wrong with a wiki. Each message is one sentence that names the thing and the next step.

WikiError
├── WikiNotFoundError        no wiki folder where one was expected
├── PageError           a page (or data file) that breaks a rule; knows its file and line
├── UnknownNameError        a page id, GPU or hardware field that does not exist
├── GoldError           a set of questions that cannot judge this wiki
├── ModelError          an embedding model that is not what it should be
└── WikiIndexError        the index cannot be used
    ├── IndexMissingError
    └── IndexBusyError       another process is writing
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WikiError(Exception):
    """Anything that `wiki` reports to its user in one sentence."""


class WikiNotFoundError(WikiError):
    """No wiki at the given or any guessed place."""


class PageError(WikiError):
    """A file breaks a rule. `path` is relative to the wiki, `line` counts from 1."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class UnknownNameError(WikiError):
    """The asked name does not exist."""


class GoldError(WikiError):
    """The questions to judge the search by are not in order."""


class ModelError(WikiError):
    """The embedding model is missing, damaged or of an unknown form."""


class WikiIndexError(WikiError):
    """The index cannot be read or written."""


class IndexMissingError(WikiIndexError):
    """There is no index yet, or it was deleted."""


class IndexBusyError(WikiIndexError):
    """Another process holds the writer's lock."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error sentence: up to three known names close to `name`, those that begin with it
    first, or the first few of all."""
    names = sorted(known)
    begun = (each for each in names if name and each.startswith(name))
    close = list(dict.fromkeys([*begun, *difflib.get_close_matches(name, names, n=3, cutoff=0.5)]))
    if close:
        return "did you mean " + " or ".join(close[:3]) + "?"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"known: {shown or 'none'}."
