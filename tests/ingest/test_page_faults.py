"""The mistakes that are provoked on a GPU still fit the pages they are made in."""

from __future__ import annotations

import ast

import pytest

from tests.ingest.page_faults import FAULTS

EDITS = [name for name, fault in FAULTS.items() if fault.code is not None]


@pytest.mark.parametrize("name", EDITS)
def test_the_page_still_holds_what_the_mistake_replaces(name: str) -> None:
    code = FAULTS[name].code
    assert code is not None
    ast.parse(code())
