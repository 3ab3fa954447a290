"""Writes small pages for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kwiki_ingest.wiki import Wiki

WritePage = Callable[..., Path]


def page_writer(wiki: Wiki) -> WritePage:
    """A function that writes technique pages; its keyword arguments add or replace front matter, as YAML."""

    def write(page_id: str, body: str = "Some text.\n", folder: str = "techniques", **front: str) -> Path:
        lines = {
            "id": page_id,
            "title": f"About {page_id}",
            "type": "technique",
            "arch": "[any]",
            "confidence": "verified",
            "sources": '[{title: A guide, url: "https://example.org/guide"}]',
            "created": "2026-11-30",
            "last_verified": "2026-11-30",
        } | front
        path = wiki.root / folder / f"{page_id}.md"
        path.parent.mkdir(exist_ok=True)
        block = "\n".join(f"{key}: {value}" for key, value in lines.items())
        path.write_text(f"---\n{block}\n---\n\n{body}", encoding="utf-8")
        return path

    return write
