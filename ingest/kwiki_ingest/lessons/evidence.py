"""The run summaries that lessons cite: `wiki/evidence/<run>.json`, written once, never changed.

A summary is a JSON object whose `run` is the run's id, and it names the code hash of every
candidate that a lesson cites. What else it holds is the business of who measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from kwiki_ingest.lessons import write
from kwiki_ingest.lessons.errors import LessonRefusedError
from kwiki_ingest.page import Evidence
from kwiki_ingest.wiki import Wiki

LARGEST_BYTES = 4 * 1024 * 1024
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def evidence_path(wiki: Wiki, run: str) -> Path:
    """Where the summary of `run` stands. Raises LessonRefusedError for an id that cannot name a file."""
    if not _RUN.fullmatch(run):
        raise LessonRefusedError(f"evidence: {run!r} is no run id; use letters, digits, '.', '_' and '-'")
    return wiki.root / "evidence" / f"{run}.json"


def check_evidence(wiki: Wiki, cited: tuple[Evidence, ...], files: Mapping[str, bytes]) -> None:
    """Every cited run has a summary, standing or in `files`, that names the cited candidates.

    Raises LessonRefusedError with a sentence that begins with the field.
    """
    for entry in cited:
        path = evidence_path(wiki, entry.run)
        content = files.get(entry.run) or (path.read_bytes() if path.exists() else None)
        if content is None:
            raise LessonRefusedError(
                f"evidence: there is no summary of run {entry.run}; put it at evidence/{entry.run}.json "
                "or pass it along"
            )
        _check_summary(entry, content)
    for run, content in files.items():
        if run not in {entry.run for entry in cited}:
            raise LessonRefusedError(
                f"evidence: a summary of run {run} was passed, but the lesson does not cite it"
            )
        path = evidence_path(wiki, run)
        if path.exists() and path.read_bytes() != content:
            raise LessonRefusedError(
                f"evidence: another summary of run {run} already stands, and is never changed"
            )


def store_evidence(wiki: Wiki, files: Mapping[str, bytes]) -> None:
    """Write the summaries that do not stand yet. The caller holds the lock and has checked them."""
    for run, content in files.items():
        path = evidence_path(wiki, run)
        if not path.exists():
            write.create(path, content)


def stands(wiki: Wiki, run: str) -> bool:
    """Whether the summary of `run` is in the wiki."""
    return evidence_path(wiki, run).exists()


def _check_summary(entry: Evidence, content: bytes) -> None:
    if len(content) > LARGEST_BYTES:
        raise LessonRefusedError(
            f"evidence: the summary of run {entry.run} has {len(content):,} bytes; "
            f"at most {LARGEST_BYTES:,} are kept"
        )
    try:
        text = content.decode()
        summary = json.loads(text)
    except ValueError:
        raise LessonRefusedError(f"evidence: the summary of run {entry.run} is not JSON") from None
    if not isinstance(summary, dict) or summary.get("run") != entry.run:
        raise LessonRefusedError(f'evidence: the summary of run {entry.run} must say "run": "{entry.run}"')
    for code_hash in entry.candidates:
        if json.dumps(code_hash) not in text:
            raise LessonRefusedError(
                f"evidence: the summary of run {entry.run} does not name candidate {code_hash}"
            )
