"""Put a file in place whole or not at all, and never over something unseen.

Every write goes to a temporary file in the same folder first, is flushed to the disk, and takes
its name in one step. Callers hold the writer's lock (`locked`), so that what they decided on is
still true when they write; the checks here catch editors that know nothing of the lock.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kwiki_ingest.lessons.errors import LessonWriteError
from kwiki_ingest.wiki import Wiki

LOCK_WAIT_S = 60.0
_TEMPORARY = ".writing-"


@contextmanager
def locked(wiki: Wiki) -> Iterator[None]:
    """Hold the lock of the write path: one lesson is decided on and written at a time.

    It is not the lock of the index: syncing happens after this one is released. Raises LessonWriteError.
    """
    try:
        wiki.index_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(wiki.index_dir / "lessons.lock")
        lock.acquire(timeout=LOCK_WAIT_S)
    except Timeout:
        raise LessonWriteError(
            f"Another process has been writing lessons for over {LOCK_WAIT_S:.0f} s; "
            "try again when it is done."
        ) from None
    except OSError as error:
        raise LessonWriteError(_sentence(wiki.index_dir, error)) from error
    try:
        _sweep(wiki.root / "lessons")
        yield
    finally:
        lock.release()


def create(path: Path, content: bytes) -> None:
    """Write a new file. Raises LessonWriteError when the name is taken or the disk refuses."""
    _place(path, content, lambda temporary: os.link(temporary, path))


def replace(path: Path, old: bytes, new: bytes) -> None:
    """Replace a file that still holds `old`. LessonWriteError when it does not, or the disk refuses."""

    def swap(temporary: Path) -> None:
        if path.read_bytes() != old:
            raise LessonWriteError(
                f"{path} was changed by someone else meanwhile; it was left alone, try again."
            )
        temporary.replace(path)

    _place(path, new, swap)


def _place(path: Path, content: bytes, move: Callable[[Path], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            move(temporary)
            _flush_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        raise LessonWriteError(f"{path} already exists and is never overwritten.") from None
    except OSError as error:
        raise LessonWriteError(_sentence(path, error)) from error


def _flush_folder(folder: Path) -> None:
    """Make the new name itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(folder: Path) -> None:
    """Remove what a killed writer left: under the lock nobody else's temporary file can be here."""
    with contextlib.suppress(OSError):
        for leftover in folder.glob(_TEMPORARY + "*"):
            leftover.unlink()


def _sentence(path: Path, error: OSError) -> str:
    return f"{path} cannot be written ({error.strerror or error}); it is as it was."
