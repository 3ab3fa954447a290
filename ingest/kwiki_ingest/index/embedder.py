"""What an embedder is, and the one that needs no model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Progress = Callable[[int, int], None]
"""Called with the number done and the number to do."""


class Embedder(Protocol):
    """Turns texts into unit vectors whose dot product is their similarity."""

    @property
    def identity(self) -> str:
        """Names the weights: vectors of different identities must never be compared."""

    @property
    def dims(self) -> int:
        """Length of every vector."""

    def count_tokens(self, text: str) -> int:
        """Word pieces that `text` takes, without the marks at either end.

        Counting may stop where the embedder would stop reading.
        """

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Passages to float32 [len(texts), dims], rows of length 1."""

    def encode_query(self, text: str) -> Vectors:
        """A question to float32 [dims], of length 1."""


class HashEmbedder:
    """Words hashed to signed dimensions: no weights, deterministic, similar only for shared words.

    For tests and for trying the pipeline where no model is at hand.
    """

    identity = "hash-256"
    dims = 256

    def count_tokens(self, text: str) -> int:
        return len(_WORD.findall(text))

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        vectors = np.zeros((len(texts), self.dims), np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.lower()):
                digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big")
                vectors[row, digest % self.dims] += 1.0 if digest & 0x8000_0000 else -1.0
            if progress:
                progress(row + 1, len(texts))
        return unit(vectors)

    def encode_query(self, text: str) -> Vectors:
        row: Vectors = self.encode([text])[0]
        return row


def unit(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled


# A long word counts as several tokens, as in any word-piece tokenizer: chunks stay bounded.
_WORD = re.compile(r"\w{1,16}|[^\w\s]")
