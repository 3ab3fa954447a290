"""The Chroma copy of the vectors: for servers, agents and large wikis.

Two Chroma clients that write one folder damage it without an error, so only `sync` writes, under the
writer's lock; and an open client never sees what another process wrote, so each use opens its own.
Rows carry their page id alone: everything shown comes from the manifest.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import chromadb
import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.client import Client
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.api.types import Metadata, PyEmbedding, Where
from chromadb.config import Settings

from kwiki_ingest.errors import WikiIndexError
from kwiki_ingest.index.embedder import Vectors
from kwiki_ingest.wiki import CHROMA_FOLDER

COLLECTION = "chunks"
# With Chroma's defaults recall@10 fell to 0.62 on 30,000 random vectors; searching wider costs microseconds.
_HNSW_EF = 400
_NO_FUNCTION = {"type": "legacy"}

Row = tuple[str, str, bytes]
"""Chunk key, page id, float32 vector bytes."""


class ChromaStore:
    """One open collection of unit vectors under cosine distance."""

    def __init__(self, client: ClientAPI, collection: chromadb.Collection) -> None:
        self._collection = collection
        self._batch = client.get_max_batch_size()

    def check_count(self, expected: int) -> None:
        """Raise WikiIndexError unless that many vectors are stored."""
        count = self._collection.count()
        if count != expected:
            raise WikiIndexError(f"Chroma holds {count} vectors of {expected}; run `wiki sync`.")

    def rows(self) -> dict[str, str]:
        """Page id by chunk key of everything stored."""
        stored = self._collection.get(include=["metadatas"])
        owners = stored["metadatas"] or []
        return {key: str(owner["page_id"]) for key, owner in zip(stored["ids"], owners, strict=True)}

    def replace(self, page_ids: Iterable[str], rows: Sequence[Row]) -> None:
        """Delete everything of those pages, then add `rows` (an upsert would keep stale metadata)."""
        pages = list(page_ids)
        for start in range(0, len(pages), self._batch):
            self._collection.delete(where=_of_pages(pages[start : start + self._batch]))
        for start in range(0, len(rows), self._batch):
            part = rows[start : start + self._batch]
            embeddings: list[PyEmbedding] = [np.frombuffer(row[2], np.float32).tolist() for row in part]
            owners: list[Metadata] = [{"page_id": row[1]} for row in part]
            self._collection.add(ids=[row[0] for row in part], embeddings=embeddings, metadatas=owners)

    def nearest(self, vector: Vectors, count: int, page_ids: Sequence[str] | None = None) -> list[str]:
        """Keys of about the `count` nearest chunks, of those pages only if given. Order is not exact."""
        total = self._collection.count()
        if total == 0 or page_ids == []:
            return []
        where = None if page_ids is None else _of_pages(page_ids)
        query: list[PyEmbedding] = [vector.tolist()]
        found = self._collection.query(
            query_embeddings=query, n_results=min(count, total), where=where, include=[]
        )
        return found["ids"][0]


@contextmanager
def open_chroma(index_dir: Path, *, fresh: bool = False) -> Iterator[ChromaStore]:
    """The wiki's collection. `fresh` first deletes what is there, unread: damage cannot stop a repair.

    Raises WikiIndexError when Chroma fails.
    """
    folder = index_dir / CHROMA_FOLDER
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    elif not folder.is_dir():  # opening would create it
        raise WikiIndexError("The Chroma store is missing; run `wiki sync`.")
    try:
        client = cast(Client, chromadb.PersistentClient(folder, Settings(anonymized_telemetry=False)))
    except Exception as error:
        SharedSystemClient.clear_system_cache()  # else this process keeps meeting the half-open client
        raise _failed(error) from error
    try:
        yield ChromaStore(client, _create(client) if fresh else _existing(client))
    except WikiIndexError:
        raise
    except Exception as error:
        raise _failed(error) from error
    finally:
        client.close()


def _create(client: ClientAPI) -> chromadb.Collection:
    return client.create_collection(
        COLLECTION,
        embedding_function=None,
        configuration={"hnsw": {"space": "cosine", "ef_search": _HNSW_EF, "ef_construction": _HNSW_EF}},
    )


def _existing(client: ClientAPI) -> chromadb.Collection:
    """The collection as some sync left it: whoever reads must not write, so a missing one is an error."""
    collection = client.get_collection(COLLECTION, embedding_function=None)
    # Chroma records "none" as type `legacy`; a named function is one that it would import and call.
    if collection.configuration_json.get("embedding_function", _NO_FUNCTION) != _NO_FUNCTION:
        raise WikiIndexError(
            "The Chroma collection names an embedding function, which runs code; run `wiki sync`."
        )
    return collection


def _of_pages(page_ids: Sequence[str]) -> Where:
    return cast(Where, {"page_id": {"$in": list(page_ids)}})


def _failed(error: Exception) -> WikiIndexError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return WikiIndexError(
        f"Chroma cannot use its folder ({reason}); make room if the disk is full, run `wiki sync`."
    )
