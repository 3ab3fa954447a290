"""The claude policy: a model reads the brief, asks tools and submits kernels. One conversation a round.

A round starts from what the run folder holds, not from the last conversation, so its length is bounded and
its start is cached. Every message is written to `conversations/` before it is acted on; a run that was
killed goes on behind the last one and pays for none twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kwiki_ingest.wiki import Wiki
from kwiki_kernels.executor import Executor
from kwiki_kernels.job import Candidate

from kwiki_agent.contract import AgentError
from kwiki_agent.policy import Brief, NothingProposedError
from kwiki_agent.policy.accounting import bill
from kwiki_agent.policy.conversation import Conversation, Transcript
from kwiki_agent.policy.dispatch import dispatch_by_shape
from kwiki_agent.policy.endpoint import Endpoint, Request
from kwiki_agent.policy.prompts import opening, system_blocks
from kwiki_agent.policy.tools import Toolbox, tool_definitions
from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import trial_of


@dataclass(frozen=True)
class Claude:
    """Asks a model during the search; what follows it needs none."""

    run: RunFolder
    wiki: Wiki
    builder: Executor
    say: Callable[[str], None]
    name = "claude"

    def propose(self, brief: Brief) -> list[Candidate]:
        """Candidates that the model submitted in this round.

        Raises:
            NothingProposedError: it submitted none; the message says why.
            RunStoppedError: the server gave no answer.
        """
        match brief.phase:
            case "search":
                return self._converse(brief)
            case "ablate":
                return _ablate(brief)
            case "confirm":
                dispatch = dispatch_by_shape(brief, self.name)
                return [dispatch] if dispatch else []

    def _converse(self, brief: Brief) -> list[Candidate]:
        contract, round_ = brief.contract, brief.round + 1
        if contract.model is None:
            raise AgentError("the contract names no model: start a run with --model")
        toolbox = Toolbox(brief, self.run, self.wiki, self.builder)
        if toolbox.room <= 0:
            return []
        transcript = Transcript(self.run, round_)
        if not transcript.messages:
            transcript.add(opening(brief, self.run, toolbox.room))
        request = Request(
            model=contract.model, role="author", round=round_,
            system=system_blocks(contract, brief.task), tools=tool_definitions(),
        )  # fmt: skip
        conversation = Conversation(self.run, contract, request, transcript, toolbox, self.say)
        with Endpoint(self.run, self.say) as endpoint:
            ended = conversation.hold(endpoint)
        total = bill(self.run)
        money = "cost unknown" if total.cost_usd is None else f"{total.cost_usd:.2f} USD"
        self.say(f"models: {ended}; {total.tokens:,} tokens so far, {money}")
        if not toolbox.submitted:
            raise NothingProposedError(ended)
        return toolbox.submitted


def _ablate(brief: Brief) -> list[Candidate]:
    """Single knobs around the incumbent, as the tuner does, where it is the task's own kernel.

    The knobs of any other text are its author's affair: moving them may change nothing.
    """
    standing = trial_of(brief.trials, brief.incumbent)
    if standing is None or standing.candidate.source not in brief.task.kernels.values():
        return []
    from kwiki_agent.policy.tuner import Tuner

    return Tuner().propose(brief) if brief.task.knob_space else []
