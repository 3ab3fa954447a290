"""What a tool is, apart from the protocol that serves it; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GROUP = "kwiki_ingest.doors"
"""Entry points that add tools: each names a function without arguments that returns Doors. So the agent's
tools are served here without this package knowing the agent."""


@dataclass(frozen=True)
class Door:
    """A function offered as a tool. Clients read its name, its docstring, and the types it takes and gives.

    It raises an exception of `expected` for what its caller must change, in one sentence.
    """

    call: Callable[..., Any]
    title: str
    expected: tuple[type[Exception], ...]
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
