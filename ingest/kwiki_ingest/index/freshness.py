"""Whether the index still shows the files: by size and time only, cheap enough for every search."""

from __future__ import annotations

from pathlib import Path

from kwiki_ingest.index.manifest import FileRow, open_for_reading
from kwiki_ingest.wiki import Wiki


def stale_reason(wiki: Wiki) -> str | None:
    """One sentence if files changed since the last sync, else None. Raises IndexMissingError."""
    with open_for_reading(wiki.index_dir) as manifest:
        indexed = manifest.files()
    present = {describe(wiki, path) for path in wiki.page_files()}
    changed = len(present - indexed)
    gone = len({row.path for row in indexed} - {row.path for row in present})
    if not changed and not gone:
        return None
    return f"The index is behind the files ({changed} changed, {gone} gone); run `wiki sync`."


def describe(wiki: Wiki, path: Path) -> FileRow:
    """The state of a file that shows whether it changed. Raises FileNotFoundError."""
    stat = path.stat()
    return FileRow(wiki.relative(path), stat.st_size, stat.st_mtime_ns)
