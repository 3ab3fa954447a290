"""The independent reviewer: another prompt, on request another model, and a veto with a reason.

It sees the contract, what the candidate changes and what was measured; not the author's words, nor the cards
or the conversation that led there. It cannot promote anything, and where it says nothing useful the rule of
promotion stands alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from kwiki_ingest.quoting import NOTE, as_data
from pydantic import BaseModel, ConfigDict, ValidationError

from kwiki_agent.contract import Contract
from kwiki_agent.policy import Case, Review, answers
from kwiki_agent.policy.endpoint import Endpoint, GarbledError, Request
from kwiki_agent.policy.tools import schema_of
from kwiki_agent.runs import REVIEWS, RunFolder

INSTRUCTIONS = f"""\
You review GPU kernels that are about to replace the best one of a run. A judge has already checked and
timed them; you look for what its checks cannot see. Veto a candidate only for a reason that you can
point at in the diff or the evidence: it answers from the inputs it was tested with instead of computing;
it skips work, rounds or accumulates more coarsely than the definition allows; it depends on state from
an earlier call; it breaks for shapes that the contract names; its gain is no more than the noise; it
breaks a constraint of the contract. Style, missing comments and your own ideas are no reasons. Call the
tool `verdict` once.

{NOTE}"""


class Verdict(BaseModel):
    """Say whether the promotion is vetoed, and why in one or two sentences."""

    model_config = ConfigDict(extra="forbid")

    veto: bool
    reason: str


class ModelReviewer:
    """Asks the contract's reviewer once a promotion; a review that was given is read back."""

    def __init__(self, run: RunFolder, contract: Contract, say: Callable[[str], None]) -> None:
        self._run, self._contract, self._say = run, contract, say

    def review(self, case: Case, round_: int) -> Review:
        """The model's verdict on a promotion.

        Raises:
            RunStoppedError: the server gave no answer.
        """
        for line in self._run.lines(REVIEWS):
            if (line["round"], line["candidate"]) == (round_, case.candidate.id):
                return Review.model_validate(line)
        review = self._ask(case, round_)
        self._run.append_line(REVIEWS, review.model_dump())
        return review

    def _ask(self, case: Case, round_: int) -> Review:
        assert self._contract.reviewer is not None
        request = Request(
            model=self._contract.reviewer, role="reviewer", round=round_,
            system=[{"type": "text", "text": INSTRUCTIONS}],
            tools=[{"name": "verdict", "description": Verdict.__doc__, "input_schema": schema_of(Verdict),
                    "strict": True}],
        )  # fmt: skip
        messages = [{"role": "user", "content": [{"type": "text", "text": case_text(self._contract, case)}]}]
        try:
            with Endpoint(self._run, self._say) as endpoint:
                reply = endpoint.ask(request, messages)
            verdict = _verdict(reply.content) if reply.stop_reason in ("tool_use", "end_turn") else None
            note = "" if verdict else f"no verdict: the reply ended with {reply.stop_reason}"
        except (GarbledError, ValidationError) as error:
            verdict, note = None, f"no verdict: {str(error).splitlines()[0]}"
        return Review(
            round=round_, candidate=case.candidate.id, veto=verdict.veto if verdict else False,
            reason=verdict.reason if verdict else "", note=note,
        )  # fmt: skip


def case_text(contract: Contract, case: Case) -> str:
    """Contract, diff and evidence as text."""
    shown = contract.model_dump_json(
        include={"task_name", "arch", "workloads", "language", "allowed_imports", "min_gain", "fixed_knobs"}
    )
    diff = "".join(
        difflib.unified_diff(
            case.before.splitlines(keepends=True), case.candidate.source.splitlines(keepends=True),
            "before", case.candidate.id, n=10,
        )
    )  # fmt: skip
    gain = (
        f"{case.ratio.value:.4f} times as fast, 95 % interval {case.ratio.low:.4f} to {case.ratio.high:.4f}"
        if case.ratio
        else "the first that passed: nothing to compare with"
    )
    beside = {"the incumbent": case.incumbent} if case.incumbent else {}
    evidence = answers.measurement_text(case.candidate.id, case.evaluation, beside)
    return "\n\n".join(
        (
            f"# Contract\n{shown}",
            f"# Change\nKnobs: {case.candidate.knobs}\n" + as_data(diff or "the code is the same", "diff"),
            f"# Evidence\n{gain}\n{evidence}",
        )
    )


def _verdict(content: list[dict[str, Any]]) -> Verdict | None:
    given = [
        block["input"] for block in content if block["type"] == "tool_use" and block["name"] == "verdict"
    ]
    return Verdict.model_validate(given[0]) if given else None
