"""The wiki that comes with the package, to begin one of your own from."""

from __future__ import annotations

import shutil
from pathlib import Path

from kwiki_ingest.errors import WikiError


def copy_starter(target: Path) -> None:
    """Copy the starter wiki to `target`, a new or empty folder. Raises WikiError otherwise."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise WikiError(f"The folder {target} is not empty; name a new one.")
        shutil.copytree(_starter(), target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    except OSError as error:
        raise WikiError(f"The wiki cannot be created in {target}: {error.strerror or error}.") from error


def _starter() -> Path:
    """Inside an installed package, else the checkout's own `wiki/`."""
    here = Path(__file__).resolve()
    for place in (here.parent / "starter_wiki", here.parents[2] / "wiki"):
        if place.is_dir():
            return place
    raise WikiError("This installation carries no starter wiki; install kernel-wiki again.")
