"""Hardware numbers by exact name: `hardware.yaml`, where every number has a source.

There is no nearest match and no default: a guessed bandwidth would silently spoil every roofline on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import RootModel, ValidationError

from kwiki_ingest.errors import UnknownNameError, nearest
from kwiki_ingest.frontmatter import YamlBlock, parse_yaml
from kwiki_ingest.page import Arch, Line, Record
from kwiki_ingest.wiki import Wiki

FILE = "hardware.yaml"


class Measured(Record):
    """What a machine of ours gave, and how."""

    value: int | float
    unit: Line
    machine: Line
    date: Line
    command: Line


class Fact(Record):
    """A number with its unit and where it stands written."""

    value: int | float
    unit: Line
    source: Line
    measured: Measured | None = None


class Gpu(Record):
    """A GPU: the architecture to compile for, and its facts by field name."""

    arch: Arch
    facts: dict[str, Fact]


class _Table(RootModel[dict[str, Gpu]]):
    pass


def load_hardware(wiki: Wiki) -> Mapping[str, Gpu]:
    """The whole table, by GPU name. Raises PageError where the file breaks the form, UnknownNameError
    where the wiki has none."""
    path = wiki.root / FILE
    if not path.exists():
        raise UnknownNameError(f"The wiki has no {FILE}; copy one from a wiki made by `wiki init`.")
    block = parse_yaml(path.read_text(encoding="utf-8-sig"), FILE)
    try:
        return _Table.model_validate(block.values).root
    except ValidationError as error:
        raise _broken(block, error) from error


def gpu(wiki: Wiki, name: str) -> Gpu:
    """One GPU by its exact name. Raises UnknownNameError naming the nearest."""
    table = load_hardware(wiki)
    if name not in table:
        raise UnknownNameError(f"The hardware table has no GPU `{name}`; {nearest(name, table)}")
    return table[name]


def lookup(wiki: Wiki, name: str, field: str) -> Fact:
    """One number, e.g. `lookup(wiki, "H200 SXM", "hbm_bandwidth_tbps")`. Raises UnknownNameError."""
    facts = gpu(wiki, name).facts
    if field not in facts:
        raise UnknownNameError(f"The hardware table has no `{field}` for {name}; {nearest(field, facts)}")
    return facts[field]


def _broken(block: YamlBlock, error: ValidationError) -> Exception:
    first = error.errors(include_url=False)[0]
    # A union's branch (`int`, `float`) is no key of the file; line_of stops at the last key that is.
    return block.error(first["loc"], f"`{'.'.join(map(str, first['loc']))}`: {first['msg'].lower()}")
