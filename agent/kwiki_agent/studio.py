"""The graph for LangGraph's own tools, which `langgraph.json` points to: each thread there is a run.

Loading the graph opens nothing and makes nothing. The first step of a thread makes a run folder with the
thread's id; `configurable` may name what `kernel-agent run` takes: task, arch, workloads, policy,
candidates. The tool keeps the checkpoints; everything else is in the run's folder as always.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from kwiki_agent.doors import RUNS_VARIABLE
from kwiki_agent.driving import locked
from kwiki_agent.graph import Step, assemble, run_step
from kwiki_agent.loop import Loop
from kwiki_agent.progress import Progress
from kwiki_agent.runs import RunFolder, open_run
from kwiki_agent.start import make_loop, new_run
from kwiki_agent.state import RunState


def _bind(step: Step) -> Any:
    def node(state: RunState, config: RunnableConfig) -> RunState:
        run = _run_of(config.get("configurable", {}))
        with locked(run):
            return run_step(step, state, _loop(run))

    return node


def _run_of(asked: dict[str, Any]) -> RunFolder:
    """The run of this thread, made now if it is not there."""
    runs_dir = Path(os.environ.get(RUNS_VARIABLE, "runs"))
    run_id = str(asked["thread_id"])
    if (runs_dir / run_id / "run.json").is_file():
        return open_run(runs_dir, run_id)
    return new_run(
        asked.get("task", "rmsnorm"),
        runs_dir=runs_dir,
        arch=asked.get("arch"),
        workloads=asked.get("workloads", "all"),
        policy=asked.get("policy", "tuner"),
        max_candidates=asked.get("candidates", 24),
        run_id=run_id,
    )


def _loop(run: RunFolder) -> Loop:
    return make_loop(run, Progress().say)


graph = assemble(_bind).compile()
