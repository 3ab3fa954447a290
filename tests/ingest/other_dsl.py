"""An interpreter with a small DSL of another version: enough to compile what never reaches a compiler."""

from __future__ import annotations

import sys
from pathlib import Path

CUTLASS = """
import os
from pathlib import Path

def compile():
    arch = os.environ["CUTE_DSL_ARCH"]
    Path(os.environ["CUTE_DSL_DUMP_DIR"], f"kernel.{arch}.cubin").write_bytes(b"")
"""


def make_interpreter(folder: Path, version: str, source: str = CUTLASS) -> Path:
    """A Python without site-packages, with nvidia-cutlass-dsl in this `version` and `cutlass` as `source`."""
    metadata = folder / f"nvidia_cutlass_dsl-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: nvidia-cutlass-dsl\nVersion: {version}\n")
    (folder / "cutlass.py").write_text(source)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python
