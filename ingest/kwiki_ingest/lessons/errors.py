"""What can go wrong on the write path.

WikiError
├── LessonRefusedError  the lesson breaks a rule of the gate; the sentence begins with the field
├── LessonWriteError    the lock or the disk refuses; what stood before still stands
└── LedgerError         the counters cannot be read or written
"""

from __future__ import annotations

from kwiki_ingest.errors import WikiError


class LessonRefusedError(WikiError):
    """The lesson is not stored, and the sentence says which field and why."""


class LessonWriteError(WikiError):
    """A file could not be written; what stood before still stands."""


class LedgerError(WikiError):
    """The ledger cannot be read or written."""
