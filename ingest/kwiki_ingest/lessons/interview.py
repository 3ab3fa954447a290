"""Ask for a lesson on a terminal, one field at a time, and ask again where an answer breaks a rule."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from kwiki_ingest.errors import nearest
from kwiki_ingest.lessons.command import KINDS
from kwiki_ingest.lessons.draft import parse_comparison
from kwiki_ingest.page import Effect, Evidence, Lesson, Record
from kwiki_ingest.vocabulary import Vocabulary

_Question = tuple[str, str, Callable[[str], Any]]
"""Field, question, and how to read the answer."""


def interview(vocabulary: Vocabulary) -> tuple[dict[str, Any], str]:
    """Front matter values and body. Raises KeyboardInterrupt or EOFError when the person gives up."""
    _say("A new lesson. Enter skips what is optional; Ctrl-C stops, and nothing is written.")
    terms = vocabulary.terms or {}
    values: dict[str, Any] = {}
    required: tuple[_Question, ...] = (
        ("title", "Title", str),
        ("claim", "Claim: what to do or know, in a sentence or two", str),
        ("kind", f"Kind ({', '.join(KINDS)})", str),
        ("technique", "Technique, e.g. vector-width", str),
        ("arch", "Architectures, e.g. sm_90a, sm_100a (or any)", _split),
    )
    for key, question, read in required:
        values[key] = _ask(question, read, _rule(Lesson, key))
    optional: tuple[_Question, ...] = (
        ("op", "Operator, e.g. rmsnorm", str),
        ("dtype", "Data types, e.g. bfloat16", _split),
        ("symptoms", "Symptoms it treats", _terms(terms.get("symptoms"))),
        ("tags", "Tags", _terms(terms.get("tags"))),
        ("aliases", "Other names to find it by", _split),
        ("knobs", "Knobs, e.g. stages >= 3; vector_bits == 128", _knobs),
        ("valid_when", "Valid when, e.g. hidden_size >= 4096", str),
        ("not_when", "Not when", str),
    )
    for key, question, read in optional:
        values[key] = _ask(question, read, _rule(Lesson, key), is_optional=True)
    if is_confirmed("Was it measured, in a run whose summary is in the wiki?", default=False):
        values |= _proof()
    body = _paragraphs("Details in Markdown; a line with a single dot ends them")
    return {key: value for key, value in values.items() if value not in (None, [], "")}, body


def is_confirmed(question: str, default: bool = True) -> bool:
    """Ask yes or no."""
    while True:
        _say(f"{question} [{'Y/n' if default else 'y/N'}] ", end="")
        answer = input().strip().lower()
        if answer in ("", "y", "yes", "n", "no"):
            return default if not answer else answer.startswith("y")


def _proof() -> dict[str, Any]:
    effect: dict[str, Any] = {}
    questions: tuple[_Question, ...] = (
        ("metric", "Metric, e.g. latency_us", str),
        ("unit", "Unit, e.g. us", str),
        ("baseline", "Baseline: what `before` is", str),
        ("before", "Before", float),
        ("after", "After", float),
        ("ci95", "95 % interval of after/before, e.g. 0.61 0.65", _numbers),
        ("n", "Samples on each side", int),
    )
    for key, question, read in questions:
        effect[key] = _ask(question, read, _rule(Effect, key))
    run = _ask("Run id", str, _rule(Evidence, "run"))
    hashes = _ask("Code hashes of the candidates", _split, _rule(Evidence, "candidates"), is_optional=True)
    return {"effect": effect, "evidence": [{"run": run} | ({"candidates": hashes} if hashes else {})]}


def _ask(
    question: str, read: Callable[[str], Any], rule: Callable[[Any], object], is_optional: bool = False
) -> Any:
    while True:
        _say(f"{question}{' (optional)' if is_optional else ''}: ", end="")
        answer = input().strip()
        if not answer and is_optional:
            return None
        try:
            value = read(answer)
            rule(value)
            return value
        except ValidationError as error:
            _say(f"  {error.errors()[0]['msg']}; try again.")
        except ValueError as error:
            _say(f"  {error}; try again.")


def _rule(record: type[Record] | type[Lesson], field: str) -> Callable[[Any], object]:
    """The field's own rule of the page model."""
    info = record.model_fields[field]
    annotation: Any = info.annotation
    for constraint in info.metadata:
        annotation = Annotated[annotation, constraint]
    return TypeAdapter(annotation).validate_python


def _split(answer: str) -> list[str]:
    return [part.strip() for part in answer.replace(";", ",").replace("，", ",").split(",") if part.strip()]


def _terms(known: Mapping[str, str] | None) -> Callable[[str], list[str]]:
    def read(answer: str) -> list[str]:
        terms = _split(answer)
        for term in terms:
            if known is not None and term not in known:
                raise ValueError(f"{term!r} is not in the vocabulary; {nearest(term, known)}".rstrip("."))
        return terms

    return read


def _knobs(answer: str) -> list[dict[str, Any]]:
    parsed = [parse_comparison(part, "knob") for part in answer.split(";") if part.strip()]
    return [
        {"name": name, "op": op, "value": tuple(v) if isinstance(v, list) else v} for name, op, v in parsed
    ]


def _numbers(answer: str) -> list[float]:
    return [float(part) for part in answer.strip("[]() ").replace(",", " ").split()]


def _paragraphs(prompt: str) -> str:
    _say(f"{prompt}:")
    lines: list[str] = []
    while (line := input()) != ".":
        lines.append(line)
    return "\n".join(lines).strip()


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
