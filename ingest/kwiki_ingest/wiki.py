"""Where a wiki is, and which of its files are pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kwiki_ingest.errors import WikiNotFoundError

# The folders of `page.FOLDERS_OF`, spelled out so that a search need not import the page records for them;
# a test holds the two equal.
PAGE_FOLDERS = (
    "blackwell", "dsl", "hopper", "kernels", "lessons", "migration",
    "patterns", "pitfalls", "primitives", "profiling", "techniques",
)  # fmt: skip

CHROMA_FOLDER = "chroma"
CHROMA_FAILED = "chroma.failed"
"""Both inside the index folder; named here, where they can be seen without importing Chroma. The second is an
empty file by which a reader that found Chroma damaged tells the next sync: readers write nothing else."""


@dataclass(frozen=True)
class Wiki:
    """A folder of Markdown pages, and beside them the index that can be deleted at any time."""

    root: Path

    @property
    def index_dir(self) -> Path:
        """The cache: SQLite manifest and Chroma store."""
        return self.root / ".index"

    def page_files(self) -> Iterator[Path]:
        """Every page's absolute path, sorted. Hidden files and other folders hold no pages."""
        for folder in PAGE_FOLDERS:
            for path in sorted((self.root / folder).rglob("*.md")):
                inside = path.relative_to(self.root).parts
                if not any(part.startswith(".") for part in inside) and path.is_file():
                    yield path

    def relative(self, path: Path) -> str:
        """`path` as pages and messages name it: relative to the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()


def open_wiki(path: Path | str | None = None) -> Wiki:
    """The wiki at `path`, else at $KERNEL_WIKI, else the nearest from here upwards.

    Going up, a folder with a `vocabulary.yaml` is a wiki, and so is a `wiki/` with page folders in it.
    Raises WikiNotFoundError when there is none.
    """
    asked = path or os.environ.get("KERNEL_WIKI")
    if asked:
        root = Path(asked).expanduser().resolve()
        if not root.is_dir():
            raise WikiNotFoundError(
                f"There is no folder {root}; create a wiki there with `wiki init {asked}`."
            )
        return Wiki(root)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "vocabulary.yaml").is_file():
            return Wiki(folder.resolve())
        root = folder / "wiki"
        if any((root / name).is_dir() for name in PAGE_FOLDERS):
            return Wiki(root.resolve())
    raise WikiNotFoundError(
        "No wiki here or above; name one with --wiki or KERNEL_WIKI, or run `wiki init DIR`."
    )
