"""The model server: one message at a time, streamed, and what can go wrong with it.

The only module that imports the SDK. The SDK retries what fails before the first byte of an answer
(connection, 408, 409, 429, 5xx), with back-off; a stream that breaks off later is asked for again here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anthropic
import httpx2
from anthropic.types import Message

from kwiki_agent.contract import Model, RunStoppedError
from kwiki_agent.policy.accounting import USAGE, Role, Usage, check_key, cost_usd
from kwiki_agent.runs import RunFolder

MAX_RETRIES = 20
"""Tries after the first that the SDK makes for one message; its back-off adds up to about two minutes, unless
the server names another time: a night's run should outlive a busy moment."""
MAX_CUTS = 3
"""Streams that may break off before the run stops."""
MAX_OUTPUT_TOKENS = 32_000
"""Of one message: room for thought and a long kernel."""

Block = dict[str, Any]


class GarbledError(Exception):
    """The model's answer cannot be read, asked again and again."""


@dataclass(frozen=True)
class Reply:
    """What the model said: content blocks as the Messages API has them, and why it stopped."""

    content: list[Block]
    stop_reason: str


@dataclass(frozen=True)
class Request:
    """Everything of a message but the messages before it."""

    model: Model
    role: Role
    round: int
    system: Sequence[Block]
    tools: Sequence[Block]


@dataclass
class _Attempt:
    """What one stream brought. `message` grows while it is heard; `trouble` is why it is not whole."""

    message: Message | None = None
    trouble: Exception | None = None
    began: float = field(default_factory=time.monotonic)


class Endpoint:
    """Asks the server that the environment names; key and base URL come from nowhere else.

    Every message is booked in the run folder, those of streams that broke off too. Without a key it raises
    AgentError.
    """

    def __init__(self, run: RunFolder, say: Callable[[str], None]) -> None:
        check_key()
        self._run, self._say = run, say
        self._client = anthropic.Anthropic(max_retries=MAX_RETRIES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def ask(self, request: Request, messages: Sequence[Block]) -> Reply:
        """The model's next message.

        Raises:
            RunStoppedError: the server gave no answer; the sentence says what to do before resuming.
            GarbledError: it answered, and the answer could not be read.
        """
        for number in range(1, MAX_CUTS + 1):
            attempt = _Attempt()
            try:
                self._hear(request, messages, attempt)
            finally:
                self._book(request, attempt)
            if attempt.message is not None and attempt.trouble is None:
                content = [_block(block) for block in attempt.message.content]
                return Reply(content, attempt.message.stop_reason or "")
            self._say(f"the model's stream broke off ({_cause(attempt.trouble)}), try {number} of {MAX_CUTS}")
        if isinstance(attempt.trouble, ValueError):
            raise GarbledError(_cause(attempt.trouble))
        raise RunStoppedError(
            f"the model's stream broke off {MAX_CUTS} times ({_cause(attempt.trouble)}): "
            "nothing is lost, resume later"
        )

    def _hear(self, request: Request, messages: Sequence[Block], attempt: _Attempt) -> None:
        try:
            with self._client.messages.stream(**_arguments(request, messages)) as stream:
                for event in stream:
                    if event.type == "message_start":
                        attempt.message = stream.current_message_snapshot
                    elif event.type == "content_block_stop":
                        self._show(event.content_block)
            if attempt.message is None or attempt.message.stop_reason is None:
                attempt.trouble = EOFError("it ended before the message did")
        except anthropic.APIConnectionError as error:
            raise RunStoppedError(
                f"the model server cannot be reached ({_cause(error)}): check ANTHROPIC_BASE_URL, then resume"
            ) from None
        except anthropic.APIStatusError as error:
            if error.status_code >= 400:
                raise _stopped(error, request) from None
            attempt.trouble = error  # an `error` event inside a stream that began with 200
        except (httpx2.HTTPError, ValueError) as error:
            attempt.trouble = error

    def _show(self, block: Any) -> None:
        """A line of progress for each block that is whole."""
        said = {"text": "text", "thinking": "thinking", "tool_use": "name"}.get(block.type, "")
        words = str(getattr(block, said, "")).strip().splitlines()
        if words:
            self._say(f"  model, {block.type.replace('_', ' ')}: {words[0][:120]}")

    def _book(self, request: Request, attempt: _Attempt) -> None:
        if attempt.message is None:
            return
        used, model = attempt.message.usage, request.model
        write, read = used.cache_creation_input_tokens or 0, used.cache_read_input_tokens or 0
        fresh, output = used.input_tokens, used.output_tokens
        line = Usage(
            round=request.round, role=request.role, model=model.name, input_tokens=fresh,
            cache_write_tokens=write, cache_read_tokens=read, output_tokens=output,
            cost_usd=cost_usd(model.price, fresh=fresh, cache_write=write, cache_read=read, output=output),
            model_s=round(time.monotonic() - attempt.began, 3),
            stop_reason="cut" if attempt.trouble else attempt.message.stop_reason or "cut",
        )  # fmt: skip
        self._run.add_line(USAGE, line.model_dump())


def _arguments(request: Request, messages: Sequence[Block]) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": request.model.name,
        "max_tokens": MAX_OUTPUT_TOKENS,
        "system": list(request.system),
        "tools": list(request.tools),
        "messages": _with_breakpoint(messages),
    }
    if request.model.effort is not None:
        # Summaries, so that a long thought shows as progress; models without effort reject both fields.
        arguments["output_config"] = {"effort": request.model.effort}
        arguments["thinking"] = {"type": "adaptive", "display": "summarized"}
    return arguments


def _with_breakpoint(messages: Sequence[Block]) -> list[Block]:
    """The messages, the last block of the last marked, so that the next request reads all this from cache."""
    *before, last = messages
    *blocks, block = last["content"]
    if block["type"] not in ("text", "tool_result"):
        return [*before, last]
    return [*before, {**last, "content": [*blocks, {**block, "cache_control": {"type": "ephemeral"}}]}]


def _stopped(error: anthropic.APIStatusError, request: Request) -> RunStoppedError:
    status, said = error.status_code, error.api_message or "no reason given"
    tries = f"after {MAX_RETRIES + 1} tries"
    match status:
        case 401 | 403:
            todo = "the model server refuses the key: set a valid ANTHROPIC_API_KEY, then resume"
        case 404:
            todo = f"the model server knows no model '{request.model.name}': fork or start a run with another"
        case 413:
            todo = "the request is too large for the model server: start a run with fewer workloads"
        case 429:
            todo = f"the model server limits the rate {tries}: nothing is lost, resume later"
        case 503 | 529:
            todo = f"the model server is overloaded {tries}: nothing is lost, resume later"
        case _ if status >= 500:
            todo = f"the model server failed {tries}: nothing is lost, resume later"
        case _:
            todo = "the model server refuses the request: mend what it names, then resume"
    return RunStoppedError(f"{todo} (HTTP {status}: {said[:200]})")


def _block(block: Any) -> Block:
    """A content block as it is sent back; the server takes no call whose input is not an object."""
    sent: Block = block.to_dict(warnings=False)
    if sent["type"] == "tool_use" and not isinstance(sent["input"], dict):
        sent["input"] = {"no object": sent["input"]}
    return sent


def _cause(error: BaseException | None) -> str:
    """The innermost reason, in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
