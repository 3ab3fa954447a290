"""A model server with a script: speaks the Messages API with streaming, and says what it was told to.

For tests and demonstrations without a key: it listens on loopback, answers one turn of the script a request,
and keeps the requests. Turns may fail as real servers do: with a status, in the middle of a stream, or with
a tool call whose JSON is broken.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

CHUNK_CHARS = 2_000
RETRY_AFTER_MS = 5

Event = dict[str, Any]


@dataclass(frozen=True)
class Say:
    """Text, and the end of the turn."""

    text: str
    stop_reason: str = "end_turn"


@dataclass(frozen=True)
class Call:
    """Calls of tools, (name, input) each. `broken` cuts the JSON of the last one."""

    calls: tuple[tuple[str, Any], ...]
    text: str = ""
    stop_reason: str = "tool_use"
    broken: bool = False


@dataclass(frozen=True)
class Fail:
    """An HTTP status instead of an answer."""

    status: int
    kind: str = "api_error"
    message: str = "by the script"


@dataclass(frozen=True)
class Cut:
    """A stream that breaks off: the connection is closed, or an `error` event of this kind is sent."""

    text: str = "half a sen"
    error_kind: str | None = None


Turn = Say | Call | Fail | Cut


def call(name: str, **given: Any) -> Call:
    """One call of one tool."""
    return Call(((name, given),))


@dataclass
class ScriptedModel:
    """Serves a script on loopback while it is entered as a context.

    A request beyond the script is answered with status 418, which no client retries.
    """

    script: Sequence[Turn]
    input_tokens: int = 1_000
    cached_tokens: int = 400
    """Of every request but the first; the first writes them to the cache."""
    output_tokens: int = 50
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of all requests, in order."""
    headers: list[dict[str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """What ANTHROPIC_BASE_URL is set to."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def next_turn(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, Turn]:
        """Keep a request and take the turn that answers it."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append(headers)
            return number, self.script[number] if number < len(self.script) else Fail(
                418, message="script over"
            )

    def events(self, number: int, turn: Say | Call | Cut) -> Iterator[Event]:
        """The stream of one message, whole or up to where it breaks off."""
        first = number == 0
        usage = {
            "input_tokens": self.input_tokens, "output_tokens": 1,
            "cache_creation_input_tokens": self.cached_tokens if first else 0,
            "cache_read_input_tokens": 0 if first else self.cached_tokens,
        }  # fmt: skip
        message: Event = {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        yield {"type": "message_start", "message": message}
        blocks = [("text", turn.text)] if turn.text else []
        if isinstance(turn, Cut):
            yield from list(_text_block(0, turn.text))[:-1]
            if turn.error_kind:
                yield {"type": "error", "error": {"type": turn.error_kind, "message": "by the script"}}
            return
        for index, (_, text) in enumerate(blocks):
            yield from _text_block(index, text)
        if isinstance(turn, Call):
            for offset, (name, given) in enumerate(turn.calls):
                cut = turn.broken and offset == len(turn.calls) - 1
                yield from _tool_block(len(blocks) + offset, f"toolu_{number}_{offset}", name, given, cut)
        yield {
            "type": "message_delta", "delta": {"stop_reason": turn.stop_reason, "stop_sequence": None},
            "usage": {"output_tokens": self.output_tokens},
        }  # fmt: skip
        yield {"type": "message_stop"}


def _text_block(index: int, text: str) -> Iterator[Event]:
    yield {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    for start in range(0, len(text), CHUNK_CHARS):
        delta = {"type": "text_delta", "text": text[start : start + CHUNK_CHARS]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _tool_block(index: int, tool_id: str, name: str, given: Any, cut: bool) -> Iterator[Event]:
    block = {"type": "tool_use", "id": tool_id, "name": name, "input": {}}
    yield {"type": "content_block_start", "index": index, "content_block": block}
    text = json.dumps(given)
    text = text[: len(text) // 2] + '\\q"' if cut else text
    for start in range(0, len(text), CHUNK_CHARS):
        delta = {"type": "input_json_delta", "partial_json": text[start : start + CHUNK_CHARS]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _handler(model: ScriptedModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number, turn = model.next_turn(body, {k.lower(): v for k, v in self.headers.items()})
            if isinstance(turn, Fail):
                self._fail(turn)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in model.events(number, turn):
                self._chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            if isinstance(turn, Cut) and not turn.error_kind:
                self.close_connection = True  # without the last chunk: to the client a broken connection
                return
            self._chunk(b"")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def _fail(self, turn: Fail) -> None:
            error = {"type": "error", "error": {"type": turn.kind, "message": turn.message}}
            data = json.dumps(error).encode()
            self.send_response(turn.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("retry-after-ms", str(RETRY_AFTER_MS))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the requests are kept."""

    return Handler
