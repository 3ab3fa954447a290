"""Checkpoints go where the environment says, and LangGraph's own tools can open the graph."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from kwiki_agent.checkpoints import VARIABLE
from kwiki_agent.contract import AgentError
from kwiki_agent.doors import RUNS_VARIABLE
from kwiki_agent.graph import STEPS, drive
from kwiki_agent.policy.external import SUBMISSION
from kwiki_agent.runs import RunFolder
from kwiki_ingest.wiki import Wiki
from langgraph.checkpoint.memory import InMemorySaver

from tests.agent.toy import MakeLoop

ROOT = Path(__file__).parents[2]


def test_an_unusable_postgres_server_is_one_sentence(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "postgresql://someone:secret@127.0.0.1:9/none?connect_timeout=2")
    has_driver = importlib.util.find_spec("psycopg") is not None
    words = "cannot be used" if has_driver else r"pip install 'kernel-wiki\[postgres\]'"
    with pytest.raises(AgentError, match=words) as caught:
        drive(make_toy_loop())
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def studio_graph() -> Any:
    """The object that langgraph.json names, found as LangGraph's tools find it."""
    entry = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))["graphs"]["kernel_agent"]
    path, _, name = entry.partition(":")
    spec = importlib.util.spec_from_file_location("studio", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def test_loading_the_graph_makes_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = studio_graph()
    assert {step.__name__ for step in STEPS} < set(graph.get_graph().nodes)
    assert not list(tmp_path.iterdir())


def test_a_thread_of_langgraphs_tools_is_a_run(
    tmp_path: Path, wiki: Wiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "runs"))
    monkeypatch.setenv("KERNEL_WIKI", str(wiki.root))
    graph = studio_graph().builder.compile(checkpointer=InMemorySaver())
    asked = {"thread_id": "from-studio", "task": "rmsnorm", "arch": "sm_90a", "policy": "external"}
    config = {"configurable": asked}
    result = graph.invoke({}, config)
    assert result["__interrupt__"][0].value == {"waiting_for": SUBMISSION}
    assert graph.get_state(config).next == ("propose",)
    contract = RunFolder(tmp_path / "runs" / "from-studio").contract
    assert (contract.policy, contract.arch) == ("external", "sm_90a")


def test_another_version_is_told_to_stay_away(make_toy_loop: MakeLoop) -> None:
    old = make_toy_loop(kernel_wiki_version="0.0.9")
    with pytest.raises(AgentError, match=r"begun by kernel-wiki 0\.0\.9 .* resume it with that version"):
        drive(old)


def test_a_contract_with_unknown_fields_is_one_sentence(make_toy_loop: MakeLoop) -> None:
    run = make_toy_loop().run
    for name in ("contract.json", "run.json"):
        if (path := run.path / name).exists():
            values = json.loads(path.read_text())
            path.write_text(json.dumps(values | {"from_the_future": 1}))
    with pytest.raises(AgentError, match="of another version of kernel-wiki"):
        run.contract  # noqa: B018
