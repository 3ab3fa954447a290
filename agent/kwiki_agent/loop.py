"""What the steps of a run work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kwiki_ingest.wiki import Wiki
from kwiki_kernels.executor import Executor
from kwiki_kernels.task import Task

from kwiki_agent.contract import Contract
from kwiki_agent.policy import Policy, Reviewer
from kwiki_agent.runs import RunFolder


@dataclass(frozen=True)
class Loop:
    """What the nodes work with. `builder` compiles here; `executor` judges, here or elsewhere."""

    run: RunFolder
    contract: Contract
    task: Task
    wiki: Wiki
    policy: Policy
    builder: Executor
    executor: Executor
    say: Callable[[str], None]
    """Takes one line of progress."""
    reviewer: Reviewer | None = None
    """May veto what the rule promotes."""
