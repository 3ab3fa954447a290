"""BERT sentence encoders in numpy, straight from the memory-mapped weights.

Importing sentence-transformers takes seconds, a one-line query should not. This runner reads the same
safetensors file and gives the same vectors (cosine to sentence-transformers within 1e-5, held by a test).
It covers what MiniLM is: BERT layers, GELU, mean pooling, float32. `supports` tells other models apart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from tokenizers import Encoding, Tokenizer

from kwiki_ingest.errors import ModelError
from kwiki_ingest.index.embedder import Progress, Vectors, unit

MAX_TOKENS = 256
_BATCH = 8
_MOST_WORKERS = 8


def supports(folder: Path) -> bool:
    """Whether the model in `folder` is one that this runner computes exactly."""
    config = _json(folder / "config.json")
    pooling = _json(folder / "1_Pooling" / "config.json")
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts")
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and pooling.get("pooling_mode_mean_tokens") is True
        and not prompts
        and all((folder / name).is_file() for name in ("model.safetensors", "tokenizer.json"))
    )


class MiniLM:
    """A sentence encoder whose weights are touched only when the first text is encoded."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.identity = identity
        self._folder = folder
        config = _json(folder / "config.json")
        self.dims: int = config["hidden_size"]
        self._layers: int = config["num_hidden_layers"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config.get("layer_norm_eps", 1e-12)

    def count_tokens(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode(self, texts: Sequence[str], progress: Progress | None = None) -> Vectors:
        encodings = [self._tokenizer.encode(text) for text in texts]
        vectors = np.zeros((len(texts), self.dims), np.float32)
        # Texts of like length share a batch, so that little padding is computed.
        order = sorted(range(len(texts)), key=lambda i: len(encodings[i].ids))
        batches = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
        # A thread per batch and none inside: BLAS threads wait for each other at every product, and on a busy
        # machine 144 chunks then took 17 to 67 s, against 10 to 14 s this way (two cores, 2026-11-30).
        pool = ThreadPoolExecutor(min(_MOST_WORKERS, os.cpu_count() or 1))
        try:
            with threadpool_limits(1, user_api="blas"):
                results = pool.map(self._forward, [[encodings[i] for i in rows] for rows in batches])
                done = 0
                for rows, result in zip(batches, results, strict=True):
                    vectors[rows] = result
                    done += len(rows)
                    if progress:
                        progress(done, len(texts))
        finally:
            pool.shutdown(cancel_futures=True)
        return unit(vectors)

    def encode_query(self, text: str) -> Vectors:
        row: Vectors = self.encode([text])[0]
        return row

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self._folder)

    @cached_property
    def _weights(self) -> dict[str, Vectors]:
        return map_safetensors(self._folder / "model.safetensors")

    def _forward(self, encodings: list[Encoding]) -> Vectors:
        """Mean of the last layer's rows, over real tokens: float32 [batch, dims]."""
        w = self._weights
        batch, length = len(encodings), max(len(e.ids) for e in encodings)
        ids = np.zeros((batch, length), np.int64)
        real = np.zeros((batch, length), bool)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            real[row, : len(encoding.ids)] = True
        x = (
            w["embeddings.word_embeddings.weight"][ids]
            + w["embeddings.position_embeddings.weight"][:length]
            + w["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._layer_norm(x, "embeddings.LayerNorm")
        hidden_keys = np.where(real, np.float32(0), np.float32(-1e9))[:, None, None, :]
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}."
            mixed = self._linear(self._attention(x, name, hidden_keys), name + "attention.output.dense")
            x = self._layer_norm(x + mixed, name + "attention.output.LayerNorm")
            inner = _gelu(self._linear(x, name + "intermediate.dense"))
            x = self._layer_norm(x + self._linear(inner, name + "output.dense"), name + "output.LayerNorm")
        weight = real[:, :, None].astype(np.float32)
        pooled: Vectors = (x * weight).sum(1) / weight.sum(1)
        return pooled

    def _attention(self, x: Vectors, name: str, hidden_keys: Vectors) -> Vectors:
        batch, length, dims = x.shape

        def heads(part: str) -> Vectors:
            y = self._linear(x, f"{name}attention.self.{part}")
            split: Vectors = y.reshape(batch, length, self._heads, -1).transpose(0, 2, 1, 3)
            return split

        q, k, v = heads("query"), heads("key"), heads("value")
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(dims // self._heads)) + hidden_keys
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        joined: Vectors = mixed.transpose(0, 2, 1, 3).reshape(batch, length, dims)
        return joined

    def _linear(self, x: Vectors, name: str) -> Vectors:
        y: Vectors = x @ self._weights[name + ".weight"].T + self._weights[name + ".bias"]
        return y

    def _layer_norm(self, x: Vectors, name: str) -> Vectors:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self._epsilon))
        y: Vectors = centred / scale * self._weights[name + ".weight"] + self._weights[name + ".bias"]
        return y


def load_tokenizer(folder: Path) -> Tokenizer:
    """The model's tokenizer, with the truncation and padding that its file carries reset."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def map_safetensors(path: Path) -> dict[str, Vectors]:
    """Read-only views of a safetensors file's float32 tensors. Raises ModelError on any other form."""
    data = np.memmap(path, np.uint8, "r")
    header_bytes = int(data[:8].view(np.uint64)[0]) if data.size >= 8 else 0
    try:
        header = json.loads(bytes(data[8 : 8 + header_bytes]))
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            if entry["dtype"] != "F32":
                continue  # position ids and other integers, not needed to compute
            start, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            tensors[name] = data[start:end].view(np.float32).reshape(entry["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"The weights in {path} are damaged; install the model again.") from error
    return tensors


def _gelu(x: Vectors) -> Vectors:
    y: Vectors = x * np.float32(0.5) * (np.float32(1) + _erf(x * np.float32(np.sqrt(0.5))))
    return y


def _erf(x: Vectors) -> Vectors:
    """Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7, close to float32 itself."""
    magnitude = np.abs(x)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * magnitude)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    y: Vectors = np.copysign(np.float32(1) - series * np.exp(-magnitude * magnitude), x)
    return y


def _json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
