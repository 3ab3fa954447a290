"""Python values as source text that a formatter leaves alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

WIDTH = 100


def literal(value: object, *, indent: int = 0, before: int = 0) -> str:
    """The value as an expression: on one line where it fits, else one item a line.

    Args:
        indent: of the line on which it begins, in spaces.
        before: characters that stand on that line already.
    """
    line = _flat(value)
    if indent + before + len(line) <= WIDTH or not isinstance(value, Mapping | tuple):
        return line
    inner = " " * (indent + 4)
    if isinstance(value, Mapping):
        items = [
            f"{_flat(name)}: {literal(item, indent=indent + 4, before=len(_flat(name)) + 3)}"
            for name, item in value.items()
        ]
        opening, closing = "{", "}"
    else:
        items = [literal(item, indent=indent + 4, before=1) for item in value]
        opening, closing = "(", ")"
    lines = "".join(f"{inner}{item},\n" for item in items)
    return f"{opening}\n{lines}{' ' * indent}{closing}"


def _flat(value: object) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            return f"({', '.join(map(_flat, value))}{',' if len(value) == 1 else ''})"
        case Mapping():
            return "{" + ", ".join(f"{_flat(name)}: {_flat(item)}" for name, item in value.items()) + "}"
    return repr(value)
