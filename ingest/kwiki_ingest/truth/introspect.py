"""Lists the public names of the installed CuTe-DSL as JSON: `python introspect.py`.

Runs in a process of its own, and with the standard library alone: importing every module of the DSL takes
seconds, and the interpreter may be one in which nothing else of this project is installed.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import importlib
import importlib.metadata
import inspect
import json
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = "cutlass"
INNER_PACKAGES = ("base_dsl", "cutlass_dsl")  # what users need of them is exported by the others
UNAVAILABLE = "__unavailable__"
PARAMETERS_OF_TRACING = ("loc", "ip")  # every operation takes them, and no kernel ever passes them

Entry = dict[str, Any]


def main() -> None:
    """Write `{"dsl": version, "symbols": [...]}` to standard output."""
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the imports print is no part of the report
    entries: dict[object, Entry] = {}
    for module in _modules(importlib.import_module(ROOT)):
        _add(entries, module.__name__, module, None, ())
        for name, value, deprecated in _public(module):
            _add(entries, f"{module.__name__}.{name}", value, deprecated, _rank(module, name, value))
        for name, value in _renamed_modules(module):
            _add(entries, f"{module.__name__}.{name}", value, None, (True,))
    symbols = [entry for found in entries.values() for entry in (_named(found), *_members(found))]
    version = importlib.metadata.version("nvidia-cutlass-dsl")
    with report:
        json.dump({"dsl": version, "symbols": sorted(symbols, key=lambda entry: entry["name"])}, report)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    """The package and its public modules; empty ones for those whose own requirements are not installed."""
    yield package
    for found in pkgutil.iter_modules(getattr(package, "__path__", ()), package.__name__ + "."):
        if found.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            module = importlib.import_module(found.name)
        except (Exception, SystemExit):
            module = ModuleType(found.name)
            module.__dict__[UNAVAILABLE] = True
        yield from _modules(module)


def _public(module: ModuleType) -> Iterator[tuple[str, object, str | None]]:
    """Name, value, and what deprecates it; what is only imported from outside the DSL is left out."""
    declared = set(getattr(module, "__all__", ()))
    for name in sorted({*dir(module), *declared}):
        if name.startswith("_"):
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = getattr(module, name)
            except Exception:  # a lazy name whose home is not installed
                continue
        if isinstance(value, ModuleType) or (name not in declared and _is_foreign(name, value)):
            continue
        warned = next((str(w.message) for w in caught if issubclass(w.category, DeprecationWarning)), None)
        yield name, value, warned or _deprecation(value, f"{module.__name__}.{name}")


def _renamed_modules(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """Other names that a package gives to its own modules, such as `utils.sm100`."""
    for name, value in vars(package).items():
        inside = isinstance(value, ModuleType) and value.__name__.startswith(f"{package.__name__}.")
        if inside and not name.startswith("_") and value.__name__ != f"{package.__name__}.{name}":
            yield name, value


def _is_foreign(name: str, value: object) -> bool:
    home = getattr(value, "__module__", None)
    if not isinstance(home, str) or home.partition(".")[0] == ROOT:
        return False
    return getattr(sys.modules.get(home), name, None) is value


def _deprecation(value: object, name: str) -> str | None:
    """What the mark on `value` says; a mark that recommends `name` was meant for another name of it."""
    text = getattr(value, "__deprecated__", None)
    return text if isinstance(text, str) and name not in text.partition("use ")[2] else None


def _add(
    entries: dict[object, Entry], name: str, value: object, deprecated: str | None, rank: tuple[object, ...]
) -> None:
    """Several names of one object are one entry; equal constants are not one object."""
    shared = isinstance(value, ModuleType) or callable(value)
    key = (id(value), deprecated) if shared else name
    entry = entries.setdefault(key, {"value": value, "names": [], "deprecated": deprecated})
    entry["names"].append((rank, name))


def _rank(module: ModuleType, name: str, value: object) -> tuple[object, ...]:
    """Sorts the names of one object: first what users import it by, the nearest package that exports it."""
    place = module.__name__
    declared = getattr(module, "__all__", ())
    is_package = hasattr(module, "__path__")
    return (
        any(part in INNER_PACKAGES for part in place.split(".")),
        name not in declared if declared else not is_package,
        not f"{getattr(value, '__module__', '')}.".startswith(f"{place}."),
        not is_package,
        -place.count("."),
    )


def _named(found: Entry) -> Entry:
    """The entry under its best name, the others as aliases."""
    name, *aliases = (name for _, name in sorted(found["names"]))
    return {**_describe(name, found["value"]), "aliases": aliases, "deprecated": found["deprecated"]}


def _members(found: Entry) -> Iterator[Entry]:
    owner = found["value"]
    if not inspect.isclass(owner):
        return
    name = _named(found)["name"]
    # `dir` leaves out `Float32.width`, a property of the class itself, and the methods of enumerations.
    of_metaclass = {*dir(type(owner))} - {*dir(type)} - {*dir(enum.EnumMeta)}
    of_enum = {*vars(owner)} if issubclass(owner, enum.Enum) else set()
    for member in sorted({*dir(owner), *of_metaclass, *of_enum}):
        if member.startswith("_"):
            continue
        with contextlib.suppress(Exception):
            value = inspect.getattr_static(owner, member, None)
            value = getattr(value, "__func__", value)
            deprecated = _deprecation(value, f"{name}.{member}")
            yield {**_describe(f"{name}.{member}", value), "aliases": [], "deprecated": deprecated}


def _describe(name: str, value: object) -> Entry:
    file, line = _place(value)
    return {
        "name": name,
        "kind": _kind(value),
        "signature": _signature(value),
        "summary": _summary(value),
        "file": file,
        "line": line,
    }


def _kind(value: object) -> str:
    if isinstance(value, ModuleType):
        return "unavailable" if hasattr(value, UNAVAILABLE) else "module"
    if inspect.isclass(value):
        return "class"
    if isinstance(value, property):
        return "property"
    return "function" if callable(value) else "value"


def _signature(value: object) -> str | None:
    if not callable(value) or (inspect.isclass(value) and issubclass(value, enum.Enum)):
        return None
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    kept = [p for p in signature.parameters.values() if p.name not in PARAMETERS_OF_TRACING]
    if kept and kept[-1].kind is inspect.Parameter.VAR_KEYWORD:
        kept = kept[:-1] if kept[-1].name in ("_", "__") else kept
    text = str(signature.replace(parameters=kept))
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+([A-Za-z_]\w*)", r"\1", text)


def _summary(value: object) -> str:
    """The first line of the docstring that the object itself has: a constant's is that of its type."""
    described = isinstance(value, (ModuleType, property)) or callable(value)
    text = inspect.cleandoc(value.__doc__ or "") if described and isinstance(value.__doc__, str) else ""
    return text.strip().partition("\n")[0]


def _place(value: object) -> tuple[str | None, int | None]:
    """File relative to the folder that holds the package, and line."""
    value = getattr(value, "fget", None) or value
    try:
        value = inspect.unwrap(value)  # type: ignore[arg-type]
        path = inspect.getsourcefile(value)  # type: ignore[arg-type]
        code = getattr(value, "__code__", None)
        line = code.co_firstlineno if code else _class_lines(str(path)).get(getattr(value, "__name__", ""), 1)
    except (AttributeError, OSError, TypeError, ValueError):
        return None, None
    parts = Path(path or "").parts
    if ROOT not in parts:
        return None, None
    start = len(parts) - 1 - parts[::-1].index(ROOT)
    return "/".join(parts[start:]), line


@functools.cache
def _class_lines(path: str) -> dict[str, int]:
    """Line by class name. `inspect` would parse the whole file again for each class, a minute in all."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return {node.name: node.lineno for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


if __name__ == "__main__":
    main()
