"""Questions whose answers are known, to judge the search by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kwiki_ingest.errors import GoldError
from kwiki_ingest.page import Arch

Kind = Literal["natural", "symptom", "error-text", "identifier", "chinese", "unanswerable"]
Split = Literal["dev", "test"]

ANSWERS = 2
"""The lowest grade of a page that a reader would be content with."""


class Question(BaseModel):
    """One line of a gold set.

    `relevant` grades pages by id: 3 answers the question, 2 answers a good part of it, 1 is background, 0 was
    looked at and does not help. Pages that are not named count as 0. `source` is the public thread that the
    question was taken from, in other words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    question: str = Field(min_length=2)
    kind: Kind
    arch: Arch | None = None
    relevant: dict[str, Annotated[int, Field(ge=0, le=3)]] = {}
    source: str = Field(pattern=r"^https://\S+$")

    @model_validator(mode="after")
    def _check_grades(self) -> Question:
        best = max(self.relevant.values(), default=0)
        if self.answerable and best < ANSWERS:
            raise ValueError(f"no page is graded {ANSWERS} or 3")
        if not self.answerable and best > 0:
            raise ValueError("an unanswerable question has no page graded above 0")
        return self

    @property
    def answerable(self) -> bool:
        """Whether a page of the wiki holds the answer."""
        return self.kind != "unanswerable"

    @property
    def split(self) -> Split:
        """Decided by the page that answers best (the first named among equals), so that what is tuned on one
        split has not seen the main pages of the other; unanswerable ones go by their id."""
        key = max(self.relevant, key=self.relevant.__getitem__) if self.answerable else self.id
        return "dev" if hashlib.sha256(key.encode()).digest()[0] % 2 else "test"


def load_gold(path: Path) -> list[Question]:
    """The questions in a JSONL file. Raises GoldError, with the line, for what is not one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise GoldError(f"The questions in {path} cannot be read: {reason}.") from error
    questions: list[Question] = []
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            question = Question.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the question"
            raise GoldError(f"{path}:{number}: {field}: {first['msg']}.") from error
        if question.id in seen:
            raise GoldError(f"{path}:{number}: the id `{question.id}` is taken; ids are unique.")
        seen.add(question.id)
        questions.append(question)
    return questions


def check_pages(questions: Sequence[Question], known: set[str]) -> None:
    """Raise GoldError when a question grades a page that the wiki does not have."""
    for question in questions:
        missing = sorted(question.relevant.keys() - known)
        if missing:
            raise GoldError(
                f"The question `{question.id}` grades the page `{missing[0]}`, which the index does not "
                "have; correct the grade or run `wiki sync`."
            )
