"""What a person sees while a run works: lines as they come, and one status line on a terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.status import Status


class Progress:
    """Progress on stderr: lines with the time, and a spinner with the newest line on a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._status: Status | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, line: str) -> None:
        """Show one line of progress."""
        elapsed = f"{time.monotonic() - self._began:6.1f} s"
        self._console.print(f"{elapsed}  {line}", markup=False, soft_wrap=True)
        if self._status is not None:
            self._status.update(line)
