"""Look for secrets and for text that tries to command a model, before a lesson is stored.

A lesson comes from a run, a person or a model, and is later shown to models: its text is data.
The scan refuses what is plainly hostile or private; it cannot prove that a text is harmless, so
readers still wrap lesson text as data and the site escapes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECRETS = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})",
    "a GitLab token": r"\bglpat-[\w-]{16,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "an API key": r"\b(?:sk|pk|rk)-(?:[a-z]+\d*-)*[\w-]{20,}",
    "a Google API key": r"\bAIza[\w-]{30,}",
    "a Slack token": r"\bxox[abeoprs]-[\w-]{10,}",
    "a JSON web token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+",
    "a bearer token": r"(?i)\bauthorization\s*[:=]\s*[\"']?(?:bearer|basic|token)\s+\S{8,}",
    "a password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]{3,}@",
    "a password": (
        r"(?i)\b(?:password|passwd|secret|api[_-]?key|access[_-]?token)\b[\"']?\s*[:=]\s*[\"']?[^\s\"'<]{6,}"
    ),
}

# Words of the trade stay allowed: warps "act as" producers, "earlier instructions" retire,
# and a line "System: H200" describes a machine.
_ORDERS = {
    "an order to ignore instructions": (
        r"\b(?:ignore|disregard|forget|override|bypass)\s+(?:(?:all|any|the|your|my|of|these|those|every)\s+)*"
        r"(?:previous|prior|above|earlier|preceding|existing|system|safety)\s+(?:\w+\s+)?"
        r"(?:instructions?|prompts?|rules?|messages?|guidelines?|context|directions?)\b"
    ),
    "an order in Chinese to ignore instructions": (
        r"(?:忽略|无视|忘记|不要理会|忘掉).{0,8}(?:之前|以上|上面|先前|前面|所有|系统).{0,8}"
        r"(?:指令|指示|提示|规则|要求|命令)"
    ),
    "a change of role": r"\b(?:you are now|from now on,? you|pretend (?:to be|you are))\b",
    "a request for the system prompt": (
        r"\b(?:reveal|print|show|repeat|leak|output)\s+(?:\w+\s+){0,3}(?:system|hidden|initial)\s+prompt\b"
    ),
    "a chat template marker": (
        r"<\|[a-z_]+\|>|\[/?INST\]|<</?SYS>>|</?(?:system|assistant|tool_result|function_calls)\b[^>]*>"
    ),
    "a chat role line": r"^\s*(?:(?:assistant|human)\s*:|system\s*:\s*you)\s",
    "a request to hide something": (
        r"\b(?:do not|don't|never)\s+(?:tell|inform|mention (?:this|it) to|reveal (?:this|it) to)\s+"
        r"(?:the\s+)?(?:user|human|operator)"
    ),
    "active web content": (
        r"<\s*(?:script|iframe|object|embed|form|svg|img|link|meta|style)\b|\bjavascript\s*:"
        r"|\bon(?:error|load|click)\s*="
    ),
    "a remote image, which would call home when shown": r"!\[[^\]]*\]\s*[\(\[]\s*<?(?:[a-z]+:)?//",
}

_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_RULES = [
    *((what, re.compile(pattern)) for what, pattern in _SECRETS.items()),
    *((what, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for what, pattern in _ORDERS.items()),
]


@dataclass(frozen=True)
class Finding:
    """What was found and in which field. It never repeats the text: that may be the secret itself."""

    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.field}: holds {self.what}; remove it"


def scan(fields: Mapping[str, object]) -> Finding | None:
    """The first finding in any text of `fields`, which may nest mappings and sequences; else None."""
    return next((finding for name, text in _texts("", fields) if (finding := _scan_text(name, text))), None)


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, (list, tuple)):
        for position, inner in enumerate(value):
            yield from _texts(f"{name}[{position}]", inner)


def _scan_text(field: str, text: str) -> Finding | None:
    if _HIDDEN.search(text):
        return Finding(field, "invisible characters")
    if _CONTROL.search(text):
        return Finding(field, "control characters")
    folded = unicodedata.normalize("NFKC", text)
    for what, rule in _RULES:
        if match := rule.search(folded):
            line = folded.count("\n", 0, match.start()) + 1
            return Finding(f"{field}, line {line}" if "\n" in folded.strip() else field, what)
    return None
