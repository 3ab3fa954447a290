"""The loop on one screen.

prepare → retrieve → propose → build → check → measure → profile → decide ─┬→ retrieve
                                                                           └→ reflect → finish
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from kwiki_agent import nodes
from kwiki_agent.budget import timed
from kwiki_agent.checkpoints import Saver, open_checkpoints
from kwiki_agent.loop import Loop
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


def make_graph(loop: Loop, checkpoints: Saver) -> Graph:
    """The compiled graph of one run, checkpointed after each node."""
    return assemble(lambda step: partial(run_step, step, loop=loop)).compile(checkpointer=checkpoints)


def assemble(bind: Callable[[Step], Any]) -> StateGraph[RunState]:
    """The steps and their order; `bind` makes a node of a step."""
    graph = StateGraph(RunState)
    for step in STEPS:
        graph.add_node(step.__name__, bind(step))
    graph.add_edge(START, "prepare")
    for before, after in (
        ("prepare", "retrieve"), ("retrieve", "propose"), ("propose", "build"), ("build", "check"),
        ("check", "measure"), ("measure", "profile"), ("profile", "decide"), ("reflect", "finish"),
    ):  # fmt: skip
        graph.add_edge(before, after)
    graph.add_conditional_edges("decide", lambda state: "reflect" if "stop" in state else "retrieve",
                                ["reflect", "retrieve"])  # fmt: skip
    graph.add_edge("finish", END)
    return graph


def run_step(step: Step, state: RunState, loop: Loop) -> RunState:
    """One step, its time booked."""
    with timed(loop.run, "step", step.__name__):
        return step(state, loop)


@dataclass(frozen=True)
class Position:
    """Where a run stands by its last checkpoint."""

    state: RunState
    began: bool
    next_step: str | None
    """The step that is due; None before the run began and after it finished."""
    waiting_for: str | None
    """What that step waits for: the id of a job, or a submission."""

    @property
    def finished(self) -> bool:
        return self.began and self.next_step is None


def drive(loop: Loop) -> str | None:
    """Run a new run, or go on with one from its last checkpoint.

    Returns:
        None when the run is finished, else what it waits for: the id of a job, or a submission.
    """
    with _checkpointed(loop) as (graph, config):
        position = _position(graph, config)
        loop.run.check_contract(position.state.get("contract_sha256"))
        if position.finished:
            return None
        start: Any = {} if not position.began else Command(resume=True) if position.waiting_for else None
        result = graph.invoke(start, config, durability="sync")
        interrupts = result.get("__interrupt__", ())
        return interrupts[0].value["waiting_for"] if interrupts else None


def locate(loop: Loop) -> Position:
    """Where the run stands; runs nothing."""
    with _checkpointed(loop) as (graph, config):
        return _position(graph, config)


def state_after(loop: Loop, candidate_id: str) -> RunState | None:
    """The state when the round of a candidate had been decided; None where it was not yet."""
    with _checkpointed(loop) as (graph, config):
        for snapshot in graph.get_state_history(config):
            decided = snapshot.next and snapshot.next[0] in ("retrieve", "reflect")
            if decided and candidate_id in snapshot.values.get("batch", ()):
                return cast(RunState, snapshot.values)
    return None


def plant(loop: Loop, state: RunState) -> None:
    """Begin a run in the middle: as if its round had just been decided with this state."""
    with _checkpointed(loop) as (graph, config):
        graph.update_state(config, state, as_node="decide")


@contextmanager
def _checkpointed(loop: Loop) -> Iterator[tuple[Graph, Any]]:
    with open_checkpoints(loop.run) as checkpoints:
        yield (
            make_graph(loop, checkpoints),
            {"configurable": {"thread_id": loop.run.id}, "recursion_limit": 10_000},
        )


def _position(graph: Graph, config: Any) -> Position:
    snapshot = graph.get_state(config)
    interrupts = [interrupt for task in snapshot.tasks for interrupt in task.interrupts]
    return Position(
        state=cast(RunState, snapshot.values),
        began=snapshot.created_at is not None,
        next_step=snapshot.next[0] if snapshot.next else None,
        waiting_for=interrupts[0].value["waiting_for"] if interrupts else None,
    )
