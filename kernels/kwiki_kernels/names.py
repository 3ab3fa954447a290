"""What the names of a module's text stand for."""

from __future__ import annotations

import ast


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Each name that an import binds anywhere in the module, to the dotted path it stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """The path of `a.b.c` where `a` was imported; None for anything else."""
    rest = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in names:
        return ".".join([names[node.id], *reversed(rest)])
    return None
