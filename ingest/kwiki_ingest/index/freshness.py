"""Whether the index still shows the files: by size and time only, cheap enough for every search."""

from __future__ import annotations

from kwiki_ingest.index.manifest import open_for_reading
from kwiki_ingest.wiki import Wiki


def stale_reason(wiki: Wiki) -> str | None:
    """One sentence if files changed since the last sync, else None. Raises IndexMissingError."""
    with open_for_reading(wiki.index_dir) as manifest:
        indexed = {row.path: (row.size, row.mtime_ns) for row in manifest.files().values()}
    present = {}
    for path in wiki.page_files():
        stat = path.stat()
        present[wiki.relative(path)] = (stat.st_size, stat.st_mtime_ns)
    changed = sum(indexed.get(path) != state for path, state in present.items())
    gone = len(indexed.keys() - present.keys())
    if not changed and not gone:
        return None
    return f"The index is behind the files ({changed} changed, {gone} gone); run `wiki sync`."
