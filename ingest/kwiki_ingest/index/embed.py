"""Embedding with sentence-transformers: any model, fast for many texts, seconds to import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from transformers.utils import logging as transformers_logging

from kwiki_ingest.index.embedder import Progress, Vectors

_BATCH = 32


class SentenceTransformerEmbedder:
    """The model in `folder`, on the CPU, with the prompts that its own configuration names."""

    def __init__(self, folder: Path, identity: str) -> None:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self.identity = identity
        self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        self.dims = int(self._model.get_embedding_dimension() or 0)

    def count_tokens(self, text: str) -> int:
        return len(self._model.tokenizer.encode(text, add_special_tokens=False))

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        parts = []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            vectors = self._model.encode_document(batch, normalize_embeddings=True, show_progress_bar=False)
            parts.append(np.asarray(vectors, np.float32))
            if progress:
                progress(start + len(batch), len(texts))
        return np.concatenate(parts) if parts else np.zeros((0, self.dims), np.float32)

    def encode_query(self, text: str) -> Vectors:
        vectors = self._model.encode_query([text], normalize_embeddings=True, show_progress_bar=False)
        row: Vectors = np.asarray(vectors, np.float32)[0]
        return row
