"""Where LangGraph keeps a run's checkpoints: SQLite in the run's folder, or a Postgres server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from kwiki_agent.contract import AgentError
from kwiki_agent.runs import RunFolder

VARIABLE = "KERNEL_CHECKPOINTS"
"""A Postgres URL. It may hold a password, so it is read from the environment alone and kept nowhere."""

Saver = BaseCheckpointSaver[Any]


@contextmanager
def open_checkpoints(run: RunFolder) -> Iterator[Saver]:
    """The checkpoints of a run, under its id as the thread.

    Raises:
        AgentError: the server cannot be used, or its driver is not installed.
    """
    url = os.environ.get(VARIABLE)
    if url:
        with _postgres(url) as saver:
            yield saver
    else:
        with closing(sqlite3.connect(run.checkpoint, check_same_thread=False)) as database:
            yield SqliteSaver(database)


@contextmanager
def _postgres(url: str) -> Iterator[Saver]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError:
        raise AgentError(
            f"{VARIABLE} names a Postgres server and its driver is missing: "
            "pip install 'kernel-wiki[postgres]'"
        ) from None
    try:
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            yield saver
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[0].replace(url, "the URL")
        raise AgentError(f"the Postgres server of {VARIABLE} cannot be used: {reason}") from None
