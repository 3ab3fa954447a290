"""Tables of text, for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows with their columns padded to one width; nothing for no rows."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a Markdown table, the first its header; cells may hold any text."""
    header, *body = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])
