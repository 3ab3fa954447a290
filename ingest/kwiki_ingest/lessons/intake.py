"""From the options of `wiki add-lesson` to the gate and back: read a draft, pass it on, tell the outcome."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kwiki_ingest.errors import PageError
from kwiki_ingest.lessons.draft import Draft, draft_text, parse_comparison, read_draft
from kwiki_ingest.lessons.gate import GateDecision, add_lesson
from kwiki_ingest.lessons.interview import interview, is_confirmed
from kwiki_ingest.load import render_page
from kwiki_ingest.vocabulary import Vocabulary, load_vocabulary
from kwiki_ingest.wiki import Wiki

LARGEST_INPUT_BYTES = 4 * 1024 * 1024
_TYPED = "the lesson"
_TEXTS = ("id", "title", "claim", "kind", "technique", "op", "dsl", "valid_when", "not_when")
_LISTS = {
    "arch": "arch", "dtype": "dtype", "tag": "tags", "alias": "aliases",
    "symptom": "symptoms", "related": "related", "supersedes": "supersedes",
}  # fmt: skip
_EFFECT = ("metric", "before", "after", "unit", "ci95", "n", "baseline")


class _StopError(Exception):
    """Nothing is added: one sentence and the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def take_in(args: argparse.Namespace, wiki: Wiki) -> int:
    """Read, check, store and report one lesson; returns the exit code."""
    try:
        decision = _take_in(args, wiki)
    except _StopError as stop:
        return _fail(str(stop), stop.code)
    except PageError as error:
        return _fail(error.reason if error.path == _TYPED else str(error), 1)
    return _report(decision, args)


def _take_in(args: argparse.Namespace, wiki: Wiki) -> GateDecision:
    try:
        files = _evidence_files(args.evidence_file or ())
        draft, is_typed_in = _read(args, load_vocabulary(wiki))
        if is_typed_in and not args.dry_run and not _is_wanted(wiki, draft, files):
            raise _StopError("Cancelled; nothing was written.", 1)
    except (KeyboardInterrupt, EOFError):
        raise _StopError("\nCancelled; nothing was written.", 1) from None
    try:
        return _pass_on(wiki, draft, files, args.dry_run)
    except KeyboardInterrupt:
        sentence = "\nInterrupted; run the same command again: a lesson that was stored is recognised."
        raise _StopError(sentence, 1) from None


def _read(args: argparse.Namespace, vocabulary: Vocabulary) -> tuple[Draft, bool]:
    """The draft, and whether it was typed in answer to questions."""
    values = _values(args)
    if args.file:
        if values or args.body:
            raise _StopError("--file holds the whole lesson; leave out the other options, or --file", 2)
        name, text = _file_text(args.file)
        return read_draft(text, name, vocabulary), False
    if values or args.body:
        return read_draft(draft_text(values, args.body or ""), _TYPED, vocabulary), False
    if not sys.stdin.isatty():
        raise _StopError(
            "nothing to add: give --file FILE (- for standard input) or --title and the rest, "
            "or start it on a terminal to be asked",
            2,
        )
    values, body = interview(vocabulary)
    return read_draft(draft_text(values, body), _TYPED, vocabulary), True


def _values(args: argparse.Namespace) -> dict[str, Any]:
    """Front matter from the options that were given."""
    values: dict[str, Any] = {name: getattr(args, name) for name in _TEXTS if getattr(args, name) is not None}
    values |= {key: getattr(args, name) for name, key in _LISTS.items() if getattr(args, name)}
    try:
        for option, key, name in (("knob", "knobs", "name"), ("trigger", "triggers", "metric")):
            if texts := getattr(args, option):
                parsed = (parse_comparison(text, f"--{option}") for text in texts)
                values[key] = [{name: left, "op": op, "value": right} for left, op, right in parsed]
    except ValueError as error:
        raise _StopError(str(error), 2) from error
    effect = {name: getattr(args, name) for name in _EFFECT if getattr(args, name) is not None}
    if effect:
        values["effect"] = effect
    if args.evidence:
        values["evidence"] = [parse_evidence(text) for text in args.evidence]
    return values


def parse_evidence(text: str) -> dict[str, Any]:
    """`RUN` or `RUN:HASH,HASH` as front matter."""
    run, _, hashes = text.partition(":")
    candidates = [part.strip() for part in hashes.split(",") if part.strip()]
    return {"run": run.strip()} | ({"candidates": candidates} if candidates else {})


def _file_text(name: str) -> tuple[str, str]:
    """The name for error messages, and the text."""
    try:
        if name == "-":
            content = sys.stdin.buffer.read(LARGEST_INPUT_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(LARGEST_INPUT_BYTES + 1)
    except OSError as error:
        raise _StopError(f"{name} cannot be read: {error.strerror}", 2) from error
    label = "<stdin>" if name == "-" else name
    if len(content) > LARGEST_INPUT_BYTES:
        raise PageError(
            label, 1, f"the text is larger than {LARGEST_INPUT_BYTES:,} bytes; a lesson is one small page"
        )
    try:
        return label, content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PageError(label, line, "the text is not UTF-8; save it as UTF-8") from error


def _evidence_files(names: Sequence[str]) -> dict[str, bytes]:
    try:
        return {Path(name).stem: Path(name).read_bytes() for name in names}
    except OSError as error:
        raise _StopError(f"--evidence-file: {error.filename} cannot be read: {error.strerror}", 2) from error


def _is_wanted(wiki: Wiki, draft: Draft, files: Mapping[str, bytes]) -> bool:
    """Show the page and what would become of it, then ask."""
    outlook = _pass_on(wiki, draft, files, dry_run=True)
    print(f"\n{render_page(draft.lesson, draft.body or draft.lesson.claim)}", file=sys.stderr)
    if outlook.action == "refused":
        print(f"It would be refused: {outlook.reason}.", file=sys.stderr)
        return False
    print(_sentence(outlook, is_rehearsal=True), file=sys.stderr)
    return is_confirmed("Store it?")


def _pass_on(wiki: Wiki, draft: Draft, files: Mapping[str, bytes], dry_run: bool) -> GateDecision:
    return add_lesson(
        wiki, draft.lesson, draft.body, evidence_files=files, free_id=not draft.has_own_id, dry_run=dry_run
    )


def _report(decision: GateDecision, args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps(asdict(decision), ensure_ascii=False))
    elif decision.action != "refused":
        print(_sentence(decision, is_rehearsal=args.dry_run))
    if decision.action == "refused":
        return 1 if args.json else _fail(f"Refused: {decision.reason}.", 1)
    if decision.index_problem:
        return _fail(f"The lesson is stored, but not searchable yet: {decision.index_problem}", 1)
    return 0


def _sentence(decision: GateDecision, is_rehearsal: bool) -> str:
    mood = "Would be " if is_rehearsal else ""
    action = decision.action if is_rehearsal else decision.action.capitalize()
    return f"{mood}{action}: {decision.path} ({decision.reason})."


def _fail(sentence: str, code: int) -> int:
    print(sentence, file=sys.stderr)
    return code
