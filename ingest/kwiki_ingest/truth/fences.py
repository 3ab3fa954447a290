"""The code fences of a page, and what each claims of its code.

A fence of Python opens with one claim after the language:

    compiles=sm_90a,sm_100a   it compiles a kernel for each of these, without a GPU
    runs                      it runs to its end on any machine
    error=TEXT                it fails, and TEXT stands in what it prints; TEXT is the rest of the line
    fragment                  nothing: it is part of something
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from kwiki_ingest.errors import nearest
from kwiki_ingest.page import Arch

Kind = Literal["compiles", "runs", "error", "fragment"]

_OPENING = re.compile(
    r"^(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[ \t]*(?P<claim>[^`]*)$"
)
_ARCHS = tuple(arch for arch in get_args(Arch) if arch != "any")


class ClaimError(ValueError):
    """A fence that claims nothing, or nothing that is known. The message is the reason alone."""


@dataclass(frozen=True)
class Claim:
    """What a fence says of its code. `archs` belongs to `compiles`, `text` to `error`."""

    kind: Kind
    archs: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Fence:
    """A fenced block. `line` is that of its opening in the file; the code starts on the next."""

    line: int
    language: str
    info: str
    code: str

    @property
    def is_python(self) -> bool:
        """Whether it must carry a claim."""
        return self.language in ("python", "py")

    def claim(self) -> Claim:
        """The claim of a Python fence. Raises ClaimError."""
        word, has_value, value = self.info.partition("=")
        word = word.strip()
        match word:
            case "compiles" if has_value:
                archs = tuple(arch.strip() for arch in value.split(","))
                for arch in archs:
                    if arch not in _ARCHS:
                        raise ClaimError(f"there is no arch `{arch}`; {nearest(arch, _ARCHS)}")
                return Claim("compiles", archs)
            case "error" if value.strip():
                return Claim("error", text=_unquoted(value.strip()))
            case "runs" | "fragment" if not has_value:
                return Claim("runs" if word == "runs" else "fragment")
            case "":
                raise ClaimError(
                    "the fence claims nothing; write `compiles=ARCH,...`, `runs`, `error=TEXT` or `fragment`"
                )
        if word in ("compiles", "error"):
            raise ClaimError(f"`{word}` needs a value, such as `{_EXAMPLES[word]}`")
        raise ClaimError(f"`{self.info}` is no claim; {nearest(word, get_args(Kind))}")


_EXAMPLES = {"compiles": "compiles=sm_90a,sm_100a", "error": "error=UNSUP_EARLY_EXIT"}


def fences(text: str) -> Iterator[Fence]:
    """Every fence of a page's whole text, in order. One that is not closed runs to the end."""
    lines = text.split("\n")
    start = _body_start(lines)
    opening: re.Match[str] | None = None
    first = start
    for number, line in enumerate(lines[start:], start):
        if opening is None:
            opening, first = _OPENING.match(line), number
        elif _closes(line, opening["mark"]):
            yield _fence(opening, first, lines[first + 1 : number])
            opening = None
    if opening is not None:
        yield _fence(opening, first, lines[first + 1 :])


def _body_start(lines: list[str]) -> int:
    """The first line after the front matter, which may hold marks in its texts."""
    ends = (i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return next(ends, -1) + 1 if lines[0].rstrip() == "---" else 0


def _closes(line: str, mark: str) -> bool:
    text = line.strip()
    return len(text) >= len(mark) and set(text) == {mark[0]}


def _fence(opening: re.Match[str], first: int, code: list[str]) -> Fence:
    indent = len(opening["indent"])
    body = "\n".join(line[indent:] if line[:indent].isspace() else line for line in code)
    return Fence(first + 1, opening["language"].lower(), opening["claim"].strip(), body + "\n")


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text
