"""A coding agent tunes a kernel through the MCP server: real compiler, no GPU, the SDK's own client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from kwiki_agent.doors import RUNS_VARIABLE
from kwiki_agent.lookup import find_task
from kwiki_agent.start import new_run
from kwiki_ingest.mcp.server import make_server
from kwiki_ingest.wiki import Wiki
from kwiki_kernels.task import load_task
from mcp import Client

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Calls a tool of a server beside a run that was just started, and not yet driven."""
    runs = tmp_path / "runs"
    monkeypatch.setenv(RUNS_VARIABLE, str(runs))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    new_run(
        "rmsnorm", runs_dir=runs, arch="sm_90a", workloads="h2048-t1024", policy="external",
        run_id="by-hand", wiki=wiki.root,
    )  # fmt: skip

    def one(tool: str, **arguments: Any) -> Any:
        async def session() -> Any:
            async with Client(make_server(wiki)) as client:
                return await client.call_tool(tool, arguments)

        return anyio.run(session)

    return one


def test_a_run_goes_from_its_brief_to_its_report_through_tools(call: Call) -> None:
    resumed = call("resume_run", run="by-hand").structured_content
    assert resumed["status"]["state"] == "waits for kernels"
    brief = call("run_brief", run="by-hand").structured_content
    assert brief["seed"] == load_task(find_task("rmsnorm")).seed_for("sm_90a")
    kernels = [{}, {"source": brief["seed"] + "\n# the same\n", "knobs": {"threads_per_row": 128}}]
    submitted = call("submit_candidate", run="by-hand", kernels=kernels, intent="begin").structured_content
    assert submitted["candidates"] == ["c0001", "c0002"]
    assert "build: 2 of 2 compiled" in submitted["progress"]
    done = call("submit_candidate", run="by-hand", kernels=[]).structured_content
    assert done["status"]["state"] == "finished"
    assert Path(done["status"]["report"]).exists()
    listed = call("run_status").structured_content["result"]
    assert [(run["run"], run["state"]) for run in listed] == [("by-hand", "finished")]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("run_brief", {"run": "nowhere"}, "no run 'nowhere'"),
        ("run_brief", {"run": "../runs/by-hand"}, "is no name of a run"),
        ("submit_candidate", {"run": "by-hand", "kernels": [{}], "intent": "x"}, "stopped before its first"),
    ],
    ids=["unknown", "outside", "too early"],
)
def test_what_a_caller_must_change_is_one_sentence(
    call: Call, tool: str, arguments: dict[str, Any], words: str
) -> None:
    answer = call(tool, **arguments)
    assert answer.is_error
    assert words in answer.content[0].text


def test_a_kernel_is_refused_before_it_costs_a_build(call: Call) -> None:
    call("resume_run", run="by-hand")
    for kernel, words in (
        ({"source": "import os"}, "kernel 1 would be rejected: line 1 imports os"),
        ({"knobs": {"threads": 1}}, "unknown knob 'threads'"),
        ({"knobs": {"threads_per_row": 1024, "rows_per_cta": 8}}, "it breaks"),
    ):
        answer = call("submit_candidate", run="by-hand", kernels=[kernel], intent="x")
        assert answer.is_error
        assert words in answer.content[0].text
    assert call("run_status", run="by-hand").structured_content["result"][0]["candidates"] == []
