"""The loop on one screen.

prepare → retrieve → propose → build → check → measure → profile → decide ─┬→ retrieve
                                                                           └→ reflect → finish
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any, Protocol

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from kwiki_agent import nodes
from kwiki_agent.nodes import Loop
from kwiki_agent.state import RunState


class Step(Protocol):
    """A node: state and loop in, changes of the state out."""

    __name__: str

    def __call__(self, state: RunState, loop: Loop) -> RunState: ...


STEPS: tuple[Step, ...] = (
    nodes.prepare, nodes.retrieve, nodes.propose, nodes.build, nodes.check,
    nodes.measure, nodes.profile, nodes.decide, nodes.reflect, nodes.finish,
)  # fmt: skip

Graph = CompiledStateGraph[RunState, None, RunState, RunState]


def make_graph(loop: Loop, checkpoints: sqlite3.Connection) -> Graph:
    """The compiled graph of one run, checkpointed after each node."""
    graph = StateGraph(RunState)
    for step in STEPS:
        graph.add_node(step.__name__, partial(step, loop=loop))
    graph.add_edge(START, "prepare")
    for before, after in (
        ("prepare", "retrieve"), ("retrieve", "propose"), ("propose", "build"), ("build", "check"),
        ("check", "measure"), ("measure", "profile"), ("profile", "decide"), ("reflect", "finish"),
    ):  # fmt: skip
        graph.add_edge(before, after)
    graph.add_conditional_edges("decide", lambda state: "reflect" if "stop" in state else "retrieve",
                                ["reflect", "retrieve"])  # fmt: skip
    graph.add_edge("finish", END)
    return graph.compile(checkpointer=SqliteSaver(checkpoints))


def drive(loop: Loop) -> str | None:
    """Run a new run, or go on with one from its last checkpoint.

    Returns:
        None when the run is finished, else the id of the job it waits for.
    """
    with sqlite3.connect(loop.run.checkpoint, check_same_thread=False) as checkpoints:
        graph = make_graph(loop, checkpoints)
        config: Any = {"configurable": {"thread_id": loop.run.id}, "recursion_limit": 10_000}
        state = graph.get_state(config)
        if state.created_at is not None and not state.next:
            return None
        waiting = any(task.interrupts for task in state.tasks)
        start: Any = {} if state.created_at is None else Command(resume=True) if waiting else None
        result = graph.invoke(start, config, durability="sync")
        interrupts = result.get("__interrupt__", ())
        return interrupts[0].value["waiting_for"] if interrupts else None
