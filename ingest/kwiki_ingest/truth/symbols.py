"""The API names of the installed CuTe-DSL: looked up exactly, with the nearest real names for a wrong one.

The table is made by `introspect.py` from the package itself and cached per user, one file for each version of
the DSL. No list of names is kept by hand, so none can go stale.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kwiki_ingest.errors import UnknownNameError, WikiError, nearest
from kwiki_ingest.truth import introspect

DISTRIBUTION = "nvidia-cutlass-dsl"
FORMAT = 1
"""Raise it when the fields of a symbol change: tables of another form are not read."""
INTROSPECTION_LIMIT_S = 300
PREFIXES = ("", "cutlass.", "cutlass.cute.", "cutlass.cute.nvgpu.")
"""A name may be given as kernels write it: `cute.copy`, `tcgen05.MmaF16BF16Op`."""


class DslError(WikiError):
    """The DSL is not installed or cannot be imported."""


@dataclass(frozen=True)
class Symbol:
    """One object of the DSL. `file` is relative to the folder of the package, `line` counts from 1."""

    name: str
    kind: str
    signature: str | None
    summary: str
    file: str | None
    line: int | None
    aliases: tuple[str, ...]
    deprecated: str | None


@dataclass(frozen=True)
class SymbolTable:
    """Every public name of one DSL version."""

    dsl: str
    symbols: Sequence[Symbol]

    @cached_property
    def by_name(self) -> Mapping[str, Symbol]:
        """Symbols by each of their dotted names."""
        return {name: symbol for symbol in self.symbols for name in (symbol.name, *symbol.aliases)}

    def get(self, name: str) -> Symbol | None:
        """The symbol with this full dotted name; a member is also found through its class's other names."""
        if name in self.by_name:
            return self.by_name[name]
        owner_name, _, member = name.rpartition(".")
        owner = self.by_name.get(owner_name)
        return self.by_name.get(f"{owner.name}.{member}") if owner else None

    def find(self, name: str) -> list[Symbol]:
        """Symbols called `name`: by the name as kernels write it, else by its last parts, best first.

        Raises UnknownNameError naming the nearest.
        """
        for prefix in PREFIXES:
            exact = self.get(prefix + name)
            if exact:
                return [exact]
        ending = f".{name}"
        found = {id(s): s for known, s in self.by_name.items() if known.endswith(ending)}
        if not found:
            raise UnknownNameError(f"{DISTRIBUTION} {self.dsl} has no `{name}`; {self.nearest(name)}")
        return sorted(found.values(), key=lambda s: (s.deprecated is not None, s.name.count("."), s.name))

    def members(self, symbol: Symbol) -> list[Symbol]:
        """What a module or class holds, by name."""
        return [self.by_name[f"{symbol.name}.{leaf}"] for leaf in self._leaves(symbol)]

    def _leaves(self, owner: Symbol) -> list[str]:
        start = f"{owner.name}."
        inside = (name[len(start) :] for name in self.by_name if name.startswith(start))
        return sorted(leaf for leaf in inside if "." not in leaf)

    def nearest(self, name: str) -> str:
        """The end of a sentence that offers real names: spelled alike in the same place, else anywhere."""
        place, _, last = name.rpartition(".")
        owner = next((self.by_name[p + place] for p in PREFIXES if p + place in self.by_name), None)
        beside = {leaf: f"{owner.name}.{leaf}" for leaf in self._leaves(owner)} if owner else {}
        everywhere = {s.name.rpartition(".")[2]: s.name for s in reversed(self.symbols)}
        for names in (beside, everywhere):
            offer = nearest(last, names)
            if offer.startswith("did you mean"):
                close = offer.removeprefix("did you mean ").removesuffix("?").split(" or ")
                return "did you mean " + " or ".join(names[word] for word in close) + "?"
        return "look at what a module holds with `wiki api cutlass.cute`."


def installed_dsl() -> str:
    """The version of the installed DSL. Raises DslError."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise DslError(f"{DISTRIBUTION} is not installed; install it with pip.") from error


def load_symbols() -> SymbolTable:
    """The table of the installed DSL: from the cache, or made now, which takes some seconds.

    Raises DslError where there is no DSL that can be imported.
    """
    version = installed_dsl()
    path = cache_dir() / f"symbols-{version}.json"
    stamp = _stamp()
    cached = _read(path)
    if cached is None or cached["stamp"] != stamp:
        cached = _introspect() | {"stamp": stamp}
        _write(path, cached)
    return _table(cached)


def seen_since(name: str, table: SymbolTable) -> str | None:
    """The version in which `name` first appeared, as far as tables of older versions are cached here."""
    since = None
    for older in _older_tables(table.dsl):
        if older.get(name) is None:
            since = None
        elif since is None:
            since = older.dsl
    oldest_known = next(iter(_older_tables(table.dsl)), None)
    if oldest_known is None or since == oldest_known.dsl:
        return None  # no version is known that lacks it
    return since or table.dsl


def cache_dir() -> Path:
    """Where tables are kept: $KERNEL_WIKI_CACHE, else `kernel-wiki` in the user's cache folder."""
    asked = os.environ.get("KERNEL_WIKI_CACHE")
    if asked:
        return Path(asked)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel-wiki"


def _older_tables(version: str) -> Iterator[SymbolTable]:
    from packaging.version import Version

    files = {path.stem.removeprefix("symbols-"): path for path in cache_dir().glob("symbols-*.json")}
    for older in sorted((known for known in files if Version(known) < Version(version)), key=Version):
        values = _read(files[older])
        if values is not None:
            yield _table(values)


def _stamp() -> list[Any]:
    """Tells one installation from another, such as one patched in place, and one way to look from another."""
    spec = importlib.util.find_spec(introspect.ROOT)
    if spec is None or spec.origin is None:
        raise DslError(f"{DISTRIBUTION} is installed without `{introspect.ROOT}`; install it again.")
    looked_by = hashlib.sha256(Path(introspect.__file__).read_bytes()).hexdigest()
    return [FORMAT, looked_by, spec.origin, Path(spec.origin).stat().st_mtime_ns]


def _introspect() -> dict[str, Any]:
    command = [sys.executable, "-P", introspect.__file__]  # -P: its neighbours are no top-level modules
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INTROSPECTION_LIMIT_S, check=False, encoding="utf-8"
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DslError(f"{DISTRIBUTION} cannot be imported ({reason}); install it again.")
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def _read(path: Path) -> dict[str, Any] | None:
    """A cached table, or None where there is none or it is damaged or of another form."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return values if values["stamp"][0] == FORMAT and values["symbols"] else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _write(path: Path, values: Mapping[str, Any]) -> None:
    """Whole or not at all. A cache that cannot be written costs time, not the answer."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(values), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)


def _table(values: Mapping[str, Any]) -> SymbolTable:
    symbols = [Symbol(**{**entry, "aliases": tuple(entry["aliases"])}) for entry in values["symbols"]]
    return SymbolTable(values["dsl"], symbols)
