"""Hardware numbers are looked up exactly, or not at all."""

from __future__ import annotations

import pytest
from kwiki_ingest.errors import PageError, UnknownNameError
from kwiki_ingest.hardware import Fact, load_hardware, lookup
from kwiki_ingest.wiki import Wiki

TABLE = """\
H200 SXM:
  arch: sm_90a
  facts:
    sms: {value: 132, unit: SMs, source: A data sheet}
    hbm_bandwidth_tbps:
      value: 4.8
      unit: TB/s
      source: A data sheet
      measured: {value: 4.2, unit: TB/s, machine: one H200, date: 2026-11-30, command: a copy}
"""


def write(wiki: Wiki, text: str) -> None:
    (wiki.root / "hardware.yaml").write_text(text)


def test_a_number_comes_with_unit_source_and_measurement(wiki: Wiki) -> None:
    write(wiki, TABLE)
    fact = lookup(wiki, "H200 SXM", "hbm_bandwidth_tbps")
    assert (fact.value, fact.unit, fact.source) == (4.8, "TB/s", "A data sheet")
    assert fact.measured is not None
    assert fact.measured.value == 4.2
    assert lookup(wiki, "H200 SXM", "sms") == Fact(value=132, unit="SMs", source="A data sheet")


@pytest.mark.parametrize(
    ("gpu", "field", "sentence"),
    [
        ("H200", "sms", "no GPU `H200`; did you mean H200 SXM?"),
        ("H200 SXM", "hbm_bandwidth", "no `hbm_bandwidth` for H200 SXM; did you mean hbm_bandwidth_tbps?"),
        ("B200", "sms", "no GPU `B200`; did you mean H200 SXM?"),
    ],
)
def test_a_missing_number_is_an_error_never_a_guess(wiki: Wiki, gpu: str, field: str, sentence: str) -> None:
    write(wiki, TABLE)
    with pytest.raises(UnknownNameError) as caught:
        lookup(wiki, gpu, field)
    assert str(caught.value) == f"The hardware table has {sentence}"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("value: 4.8", "value: fast", 6),
        ("      source: A data sheet\n", "", 5),
        ("arch: sm_90a", "arch: sm_90", 2),
        ("      unit: TB/s\n", "      unit: TB/s\n      unit: GB/s\n", 8),
        ("      unit: TB/s\n", "      unit: TB/s\n      note: x\n", 8),
    ],
)
def test_a_malformed_table_is_named_with_its_line(wiki: Wiki, old: str, new: str, line: int) -> None:
    write(wiki, TABLE.replace(old, new))
    with pytest.raises(PageError) as caught:
        load_hardware(wiki)
    assert (caught.value.path, caught.value.line) == ("hardware.yaml", line)


def test_a_wiki_without_a_table_says_so(wiki: Wiki) -> None:
    with pytest.raises(UnknownNameError, match=r"no hardware\.yaml"):
        load_hardware(wiki)
