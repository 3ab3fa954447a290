"""A conversation: the messages of one round, kept on disk, and what the loop answers to each reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kwiki_agent.budget import why_model_budget_ends
from kwiki_agent.contract import Contract
from kwiki_agent.policy.accounting import bill
from kwiki_agent.policy.endpoint import Block, Endpoint, GarbledError, Request
from kwiki_agent.policy.tools import Toolbox
from kwiki_agent.runs import RunFolder

MAX_REPLIES = 40
"""Of the model in one round; a round that needs more goes in circles."""
MAX_SLIPS = 2
"""Replies in one round that may be cut at the token limit, or end the turn with nothing submitted."""

CUT = "your reply was cut at the token limit and nothing of it was done: say less, and submit sooner"
ENDINGS = {
    "refusal": "the model refused",
    "model_context_window_exceeded": "the conversation outgrew the model's context",
}
PROSE = "nothing was submitted: call submit_candidate, since a kernel in prose is not read"


class Transcript:
    """The messages of one round, on disk as they come: `conversations/rNNN.jsonl`."""

    def __init__(self, run: RunFolder, round_: int) -> None:
        self._run, self._name = run, f"conversations/r{round_:03d}.jsonl"
        (run.path / "conversations").mkdir(exist_ok=True)
        self.messages: list[Block] = list(run.lines(self._name))

    def add(self, message: Block) -> None:
        self._run.add_line(self._name, message)
        self.messages.append(message)

    def sent(self) -> list[Block]:
        """The messages as the server takes them."""
        return [{"role": message["role"], "content": message["content"]} for message in self.messages]


@dataclass
class Conversation:
    """One round, from its opening or from where it was cut to its end. Submissions gather in the toolbox."""

    run: RunFolder
    contract: Contract
    request: Request
    transcript: Transcript
    toolbox: Toolbox
    say: Callable[[str], None]
    slips: int = 0

    def hold(self, endpoint: Endpoint) -> str:
        """Ask and answer in turn; returns why it ended.

        Raises:
            RunStoppedError: the server gave no answer.
        """
        self._replay()
        while True:
            last = self.transcript.messages[-1]
            if last["role"] == "user":
                if why := self._why_not_ask():
                    return why
                try:
                    last = self._ask(endpoint)
                except GarbledError as error:
                    return f"the model's answers could not be read ({error})"
            reaction = self._react(last)
            if isinstance(reaction, str):
                return reaction
            self.transcript.add(reaction)

    def _replay(self) -> None:
        """Answer again what was answered before a kill, for what it does to the toolbox."""
        for message in self.transcript.messages[:-1]:
            if message["role"] == "assistant":
                self._react(message)

    def _why_not_ask(self) -> str | None:
        if why := why_model_budget_ends(self.contract, bill(self.run)):
            return why
        replies = sum(message["role"] == "assistant" for message in self.transcript.messages)
        return f"the model had its {MAX_REPLIES} replies" if replies >= MAX_REPLIES else None

    def _ask(self, endpoint: Endpoint) -> Block:
        reply = endpoint.ask(self.request, self.transcript.sent())
        message = {"role": "assistant", "content": reply.content, "stop_reason": reply.stop_reason}
        if reply.content:  # the server takes no empty message back
            self.transcript.add(message)
        return message

    def _react(self, message: Block) -> Block | str:
        """The answer to a reply of the model, or why the round ends with it."""
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        match message["stop_reason"]:
            case "tool_use" | "end_turn" if calls:
                results = [self._result(call) for call in calls]
                return "the round is full" if self.toolbox.room <= 0 else {"role": "user", "content": results}
            case "max_tokens":  # its last call is cut somewhere, which the text of a kernel does not show
                return self._slip(CUT, "the model's replies were cut at the token limit", calls)
            case "refusal" | "model_context_window_exceeded" as reason:
                return ENDINGS[reason]
            case _ if self.toolbox.submitted:
                return "the model ended its turn"
            case _:
                return self._slip(PROSE, "the model submitted nothing, but answered in prose", [])

    def _result(self, call: Block) -> Block:
        text, is_error = self.toolbox.call(call["name"], call["input"])
        if is_error:
            self.say(f"  {call['name']}: {text.splitlines()[0][:160]}")
        return {"type": "tool_result", "tool_use_id": call["id"], "content": text, "is_error": is_error}

    def _slip(self, hint: str, ending: str, calls: list[Block]) -> Block | str:
        self.slips += 1
        if self.slips > MAX_SLIPS:
            return ending
        unanswered: list[Block] = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": hint, "is_error": True}
            for call in calls
        ]
        return {"role": "user", "content": unanswered or [{"type": "text", "text": hint}]}
