"""Kernels that a person or a model wrote: what one must be before the run spends a build on it."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

from kwiki_ingest.load import find_page
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.audit import LANGUAGES, audit_source
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Knobs, Record
from kwiki_kernels.job import Candidate
from kwiki_kernels.knobs import holds
from kwiki_kernels.names import imported_names
from kwiki_kernels.task import Task
from pydantic import Field

from kwiki_agent.contract import AgentError, Contract

MAX_SOURCE_BYTES = 256 * 1024
"""Sixteen times the longest kernel that comes with the package: what is beyond that is no kernel."""


class Draft(Record):
    """One kernel as handed in."""

    name: str
    """What messages call it: a file's name, say."""
    source: str
    knobs: Knobs = {}
    """All knobs of the task, or none where it has none."""
    intent: Annotated[str, Field(max_length=500)] = ""
    direction: Annotated[str, Field(max_length=200)] = ""
    cards: tuple[str, ...] = ()
    parent: str | None = None
    """The candidate that it starts from; None: the incumbent."""


def read_kernel(path: Path) -> str:
    """The text of a kernel file.

    Raises:
        AgentError: there is no such file, it is too large, or it is not UTF-8.
    """
    if not path.is_file():
        raise AgentError(f"no kernel file '{path}': give the path of a Python file with build or run")
    _check_size(f"'{path}'", path.stat().st_size)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise AgentError(f"'{path}' is not UTF-8 (byte {error.start}): save it as UTF-8") from None


def check_drafts(
    drafts: Sequence[Draft], tried: Iterable[Candidate], *, task: Task, contract: Contract, wiki: Wiki
) -> None:
    """Refuse what the loop would waste a build on; nothing is compiled or run here.

    Raises:
        AgentError: a draft says not what it tries, is too large, no Python, breaks a rule of the audit or of
            the contract, has knobs that the task does not allow, names a parent that is no candidate, or
            repeats an experiment; one sentence that names it.
        kwiki_ingest.errors.WikiError: a card is no page.
    """
    tried = list(tried)
    seen = {fingerprint(c.source, c.knobs): f"candidate {c.id}" for c in tried if not c.rules}
    for draft in drafts:
        if not draft.intent.strip():
            raise AgentError(f"{draft.name} lacks an intent: say in one sentence what it tries")
        if draft.parent is not None and draft.parent not in {candidate.id for candidate in tried}:
            raise AgentError(f"{draft.name}: there is no candidate '{draft.parent}' to be its parent")
        _check_source(draft)
        check_contract(draft.name, draft.source, contract)
        _check_knobs(draft, task, contract)
        for card in draft.cards:
            find_page(wiki, card)
        mark = fingerprint(draft.source, draft.knobs)
        if mark in seen:
            raise AgentError(f"{draft.name} is {seen[mark]} again: change the code or the knobs")
        seen[mark] = draft.name


def fingerprint(source: str, knobs: Knobs) -> str:
    """The same for texts that differ in comments, docstrings and layout alone, with the same knobs."""
    try:
        text = ast.dump(_without_docstrings(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = source
    return hashlib.sha256(json.dumps([text, knobs], sort_keys=True).encode()).hexdigest()


def _check_size(name: str, size_bytes: int) -> None:
    if size_bytes > MAX_SOURCE_BYTES:
        raise AgentError(
            f"{name} has {size_bytes:,} bytes and may have {MAX_SOURCE_BYTES:,}: hand in the code alone"
        )


def _check_source(draft: Draft) -> None:
    _check_size(draft.name, len(draft.source.encode(errors="surrogatepass")))
    try:
        ast.parse(draft.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else ""
        raise AgentError(f"{draft.name} is no Python{where}; hand in a whole module") from None
    if refusal := audit_source(draft.source):
        raise AgentError(f"{draft.name} would be rejected: {refusal}")


def check_contract(name: str, source: str, contract: Contract) -> None:
    """Refuse a kernel in another language than the contract's, or with imports that it does not allow.

    Raises:
        AgentError: one sentence that begins with `name`.
    """
    imported = {path.split(".")[0] for path in imported_names(ast.parse(source)).values()}
    others = {n for language, names in LANGUAGES.items() if language != contract.language for n in names}
    if contract.language != "any" and (wrong := imported & others):
        raise AgentError(f"{name} imports {min(wrong)}, but the contract wants {contract.language}")
    if contract.allowed_imports and (extra := imported - {"__future__", *contract.allowed_imports}):
        raise AgentError(f"{name} imports {min(extra)}, which the contract does not allow")


def _check_knobs(draft: Draft, task: Task, contract: Contract) -> None:
    if task.knob_space is None:
        if draft.knobs:
            raise AgentError(f"{task.name} has no knobs.json, so '{min(draft.knobs)}' cannot be set")
        return
    try:
        task.knob_space.check(draft.knobs)
    except TaskError as error:
        raise AgentError(f"{draft.name}: {error}") from None
    if draft.source in task.kernels.values():  # the constraints speak of the seed alone
        for uuid in contract.workloads:
            names = {**task.definition.axis_values(task.workload(uuid).axes), **draft.knobs}
            if broken := [rule for rule in task.knob_space.constraints if not holds(rule, names)]:
                raise AgentError(f"{draft.name}: on {uuid} it breaks '{broken[0]}'")
    for name, value in contract.fixed_knobs.items():
        if draft.knobs[name] != value:
            raise AgentError(f"{draft.name}: the contract fixes {name} at {value}")


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = list(rest)
    return tree
