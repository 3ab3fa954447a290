"""The MCP server: the wiki's tools and those that other packages add, over stdio or loopback HTTP."""

from __future__ import annotations

import functools
import inspect
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points, version
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from kwiki_ingest.errors import WikiError
from kwiki_ingest.mcp.door import GROUP, Door
from kwiki_ingest.mcp.tools import WikiTools
from kwiki_ingest.quoting import NOTE
from kwiki_ingest.wiki import Wiki

HOST = "127.0.0.1"
INSTRUCTIONS = (
    "A wiki on writing fast GPU kernels in CuTe-DSL for Hopper and Blackwell, with lessons that runs "
    "measured. Search it before you write or tune a kernel and when something fails; look every DSL name "
    "up; offer what you measured as a lesson. " + NOTE
)  # fmt: skip


def make_server(wiki: Wiki) -> MCPServer[Any]:
    """A server with every tool there is; imports nothing heavy."""
    server: MCPServer[Any] = MCPServer(
        "kernel-wiki", instructions=INSTRUCTIONS, version=version("kernel-wiki"), log_level="WARNING"
    )
    for door in (*WikiTools(wiki).doors(), *_added_doors()):
        server.add_tool(
            _speaking_plainly(door),
            title=door.title,
            description=inspect.getdoc(door.call),
            annotations=ToolAnnotations(
                title=door.title,
                read_only_hint=door.read_only,
                destructive_hint=door.destructive,
                idempotent_hint=door.idempotent,
                open_world_hint=False,
            ),
            structured_output=True,
        )
    return server


def serve(wiki: Wiki, http_port: int | None = None) -> None:
    """Serve until the client leaves, or over HTTP until Ctrl-C. Only this machine is listened to.

    Raises:
        WikiError: the port is taken.
    """
    server = make_server(wiki)
    if http_port is None:
        server.run("stdio")
    else:
        _check_free(http_port)
        print(f"Serving http://{HOST}:{http_port}/mcp", file=sys.stderr)
        server.run("streamable-http", host=HOST, port=http_port)


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise WikiError(f"Port {port} cannot be served ({error.strerror}); give another one.") from error


def _added_doors() -> Iterator[Door]:
    for entry in entry_points(group=GROUP):
        yield from entry.load()()


def _speaking_plainly(door: Door) -> Callable[..., Any]:
    """The door's function, with what it expects to go wrong told to the client in its own sentence."""

    @functools.wraps(door.call)
    def call(**arguments: Any) -> Any:
        try:
            return door.call(**arguments)
        except door.expected as error:
            raise ToolError(str(error)) from error

    return call
