"""Whether the code on the pages does what its fences claim, under the DSL of one interpreter.

Only what changed is tried again: an outcome is kept for the code, the claim and the version of the DSL.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from packaging.specifiers import SpecifierSet

from kwiki_ingest.errors import PageError
from kwiki_ingest.load import find_page, parse_page, read_source
from kwiki_ingest.page import PageType
from kwiki_ingest.truth.fences import Claim, ClaimError, Fence, fences
from kwiki_ingest.truth.outcomes import Outcome, Outcomes, Recheck, open_outcomes
from kwiki_ingest.truth.symbols import DISTRIBUTION, DslError, installed_dsl
from kwiki_ingest.truth.trial import Trial, attempt
from kwiki_ingest.vocabulary import Vocabulary
from kwiki_ingest.wiki import Wiki

LIMIT_S = 60.0
"""A snippet takes one to a few seconds; ten times that is a hang."""
CHECK_VERSION = 1
"""Raise it when a trial judges otherwise: every snippet is then tried again."""
ARCHS_OF_ANY = ("sm_90a", "sm_100a")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Snippet:
    """One claim to try: a fence of a page for one architecture."""

    page_id: str
    path: str
    fence_line: int
    trial: Trial

    @property
    def key(self) -> str:
        """Names code and claim, whatever page they stand on."""
        parts = [CHECK_VERSION, self.trial.kind, self.trial.arch, self.trial.text, self.trial.code]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Result:
    """A snippet with its outcome; `line` is that of the file."""

    snippet: Snippet
    outcome: Outcome

    @property
    def line(self) -> int:
        return self.snippet.fence_line + self.outcome.line


@dataclass(frozen=True)
class Report:
    """What `verify` found. `problems` are broken pages and claims, `skipped` says which pages it left out."""

    dsl: str
    results: tuple[Result, ...]
    tried: int
    fragments: int
    skipped: Mapping[str, str]
    problems: tuple[PageError, ...]
    rechecks: Mapping[str, Recheck]

    @property
    def failed(self) -> list[Result]:
        """The claims that do not hold."""
        return [result for result in self.results if not result.outcome.passed]


@dataclass(frozen=True)
class _Claims:
    """What the chosen pages claim. `hashes` are the pages' content hashes by id."""

    snippets: list[Snippet]
    hashes: dict[str, str]
    fragments: int
    skipped: dict[str, str]
    problems: list[PageError]


def verify(
    wiki: Wiki,
    page_ids: Collection[str] = (),
    *,
    python: Path | None = None,
    workers: int | None = None,
    limit_s: float = LIMIT_S,
    again: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Try every claim of the pages (all but lessons, unless named) and mark those to be rechecked.

    `python` is an interpreter with another DSL. `again` distrusts what is known. Raises UnknownNameError for
    an unknown page and DslError where the interpreter has no DSL.
    """
    dsl = _dsl_of(python)
    claims = _collect(wiki, page_ids, dsl)
    with open_outcomes(wiki) as outcomes:
        known = {} if again else outcomes.of(dsl)
        missing = [snippet for snippet in claims.snippets if snippet.key not in known]
        interpreter = python or Path(sys.executable)
        fresh = _try_all(
            missing, interpreter, limit_s, workers or os.cpu_count() or 1, outcomes, dsl, progress
        )
        results = [Result(snippet, (known | fresh)[snippet.key]) for snippet in claims.snippets]
        rechecks = _rechecks(results, claims, outcomes, dsl)
        outcomes.set_rechecks(claims.hashes, rechecks)
    return Report(
        dsl=dsl,
        results=tuple(results),
        tried=len(fresh),
        fragments=claims.fragments,
        skipped=claims.skipped,
        problems=tuple(claims.problems),
        rechecks=rechecks,
    )


def _dsl_of(python: Path | None) -> str:
    if python is None:
        return installed_dsl()
    command = [str(python), "-c", f"from importlib.metadata import version; print(version('{DISTRIBUTION}'))"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise DslError(f"{python} is no Python with {DISTRIBUTION}; install it there.") from error
    return str(done.stdout).strip()


def _collect(wiki: Wiki, page_ids: Collection[str], dsl: str) -> _Claims:
    found = _Claims([], {}, 0, {}, [])
    fragments = 0
    paths = [find_page(wiki, page_id) for page_id in page_ids] if page_ids else list(wiki.page_files())
    for path in paths:
        try:
            source = read_source(wiki, path)
            front = parse_page(source, Vocabulary(None)).front
        except PageError as problem:
            found.problems.append(problem)
            continue
        if front.type is PageType.LESSON and not page_ids:
            continue  # lessons come from runs and strangers: their code runs when somebody asks for it
        if not SpecifierSet(front.dsl).contains(dsl, prereleases=True):
            found.skipped[source.path] = f"it is for DSL {front.dsl}"
            continue
        found.hashes[front.id] = source.content_hash
        for fence in fences(source.text):
            if not fence.is_python:
                continue
            try:
                claim = fence.claim()
            except ClaimError as error:
                found.problems.append(PageError(source.path, fence.line, str(error)))
                continue
            fragments += claim.kind == "fragment"
            for trial in _trials(fence, claim, front.arch):
                found.snippets.append(Snippet(front.id, source.path, fence.line, trial))
    return _Claims(found.snippets, found.hashes, fragments, found.skipped, found.problems)


def _trials(fence: Fence, claim: Claim, page_archs: Sequence[str]) -> Iterator[Trial]:
    """One for each architecture: those that the claim names, else for an error those of the page."""
    if claim.kind == "fragment":
        return
    if claim.kind == "runs":
        yield Trial("runs", "", "", fence.code)
        return
    archs = claim.archs or (ARCHS_OF_ANY if "any" in page_archs else page_archs)
    for arch in archs:
        yield Trial(claim.kind, arch, claim.text, fence.code)


def _try_all(
    snippets: Sequence[Snippet],
    python: Path,
    limit_s: float,
    workers: int,
    outcomes: Outcomes,
    dsl: str,
    progress: Progress | None,
) -> dict[str, Outcome]:
    """Try the snippets side by side. Each outcome is kept at once, so that a stop loses only what runs."""
    trials = {snippet.key: snippet.trial for snippet in snippets}
    fresh: dict[str, Outcome] = {}
    stop = Event()
    with ThreadPoolExecutor(workers) as pool:
        try:
            running = {
                pool.submit(attempt, trial, python, limit_s, stop): key for key, trial in trials.items()
            }
            for done in as_completed(running):
                outcome, is_its_own = done.result()
                fresh[running[done]] = outcome
                if is_its_own:  # a snippet killed or crashed is tried again: the machine may be to blame
                    outcomes.put(running[done], dsl, outcome)
                if progress:
                    progress(len(fresh), len(trials))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return fresh


def _rechecks(results: Sequence[Result], claims: _Claims, outcomes: Outcomes, dsl: str) -> dict[str, Recheck]:
    """The first failure of each page as the reason to look at it again."""
    found: dict[str, Recheck] = {}
    for result in results:
        snippet = result.snippet
        if result.outcome.passed or snippet.page_id in found:
            continue
        arch = f" for {snippet.trial.arch}" if snippet.trial.arch else ""
        before = [version for version in outcomes.versions_passed(snippet.key) if version != dsl]
        held = f"; it held with {', '.join(sorted(before))}" if before else ""
        reason = f"the code on line {snippet.fence_line}{arch} fails with {DISTRIBUTION} {dsl}{held}"
        found[snippet.page_id] = Recheck(claims.hashes[snippet.page_id], reason)
    return found
