from __future__ import annotations

from pathlib import Path

import pytest
from kwiki_agent.graph import drive
from kwiki_agent.query import query_for
from kwiki_agent.state import Stage
from kwiki_kernels.profile.diagnose import diagnose
from kwiki_kernels.task import load_task

from tests.agent.toy import MakeLoop


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("draft", "how to write"),
        ("compile-error", "compile error"),
        ("wrong-numbers", "wrong numbers"),
        ("too-slow", "register-spills narrow-loads"),
    ],
)
def test_the_question_fits_the_stage_and_names_what_the_diagnosis_found(
    task_dir: Path, stage: Stage, words: str
) -> None:
    metrics = {"spills": 4.0, "global_load_bits": 32.0, "tensor_instructions": 0.0}
    query = query_for(stage, load_task(task_dir), metrics)
    assert query.startswith("rmsnorm float32 kernel: ")
    assert words in query


def test_every_round_keeps_the_diagnosis_that_its_metrics_give(make_toy_loop: MakeLoop) -> None:
    loop = make_toy_loop()
    drive(loop)
    lines = list(loop.run.lines("diagnoses.jsonl"))
    assert lines
    for line in lines:
        again = diagnose(line["metrics"])
        assert (line["bound"], line["next_edit"]) == (again.bound, again.next_edit)
        assert line["metrics"]["latency_us"] > 0
