"""The question that the loop puts to the wiki."""

from __future__ import annotations

from collections.abc import Mapping

from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.task import Task

from kwiki_agent.state import Stage

MAX_SYMPTOMS = 3
"""More words than this blur a question: the first symptom is the one behind the next edit."""


def query_for(stage: Stage, task: Task, metrics: Mapping[str, float]) -> str:
    """The question for the wiki at this stage of the loop; `metrics` are the last profile's."""
    definition = task.definition
    dtypes = " ".join(sorted({spec.dtype for spec in definition.inputs.values()}))
    subject = f"{definition.op_type} {dtypes} kernel"
    match stage:
        case "draft":
            return f"{subject}: how to write and tune it"
        case "compile-error":
            return f"{subject}: compile error"
        case "wrong-numbers":
            return f"{subject}: wrong numbers"
        case "too-slow":
            symptoms = diagnose(metrics).symptoms[:MAX_SYMPTOMS]
            return f"{subject}: {' '.join(symptoms)} make it faster"
