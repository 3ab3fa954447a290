"""The profilers run when they are worth it: on an incumbent that stood a round, once, where the GPU is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kwiki_agent.graph import drive
from kwiki_agent.profiling import read_diagnosis
from kwiki_kernels.profile import ncu

from tests.agent.toy import FormulaExecutor, MakeLoop
from tests.kernels.test_profile_ncu import raw_page


class Local(FormulaExecutor):
    """A formula in the place of this machine's GPU."""

    name = "local"


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ncu` on PATH that prints a recorded page, and the file in which it notes each call."""
    page, calls = tmp_path / "page.csv", tmp_path / "calls.txt"
    page.write_text(raw_page({"kernel": "toy", ncu.DURATION: "2848", ncu.DRAM_SHARE: "14.26"}))
    script = tmp_path / "bin" / "ncu"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nfrom pathlib import Path\nwith open({str(calls)!r}, 'a') as stream:\n"
        f"    stream.write('called\\n')\nprint(Path({str(page)!r}).read_text())\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    return calls


def test_an_incumbent_is_profiled_once_after_it_stood_a_round(make_toy_loop: MakeLoop, counted: Path) -> None:
    loop = make_toy_loop(Local(), max_candidates=16)
    drive(loop)
    profiled = [path.name for path in (loop.run.path / "profile").iterdir()]
    promotions = [line["candidate"] for line in loop.run.lines("promotions.jsonl")]
    assert len(counted.read_text().splitlines()) == len(profiled)
    assert set(profiled) <= set(promotions)
    assert len(profiled) < len(promotions), "those that fell at once were not worth it"
    diagnosis = read_diagnosis(loop.run, profiled[0])
    assert diagnosis is not None
    assert diagnosis.metrics[ncu.DRAM_SHARE] == pytest.approx(14.26)
    assert (loop.run.path / "profile" / profiled[0] / "ncu.csv").exists()


def test_without_the_profiler_a_note_is_left_and_the_run_goes_on(
    make_toy_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said: list[str] = []
    loop = make_toy_loop(Local(), max_candidates=16)
    object.__setattr__(loop, "say", said.append)
    assert drive(loop) is None
    assert any("no counters: ncu is not on PATH" in line for line in said)


def test_where_the_gpu_is_elsewhere_nothing_is_profiled(make_toy_loop: MakeLoop, counted: Path) -> None:
    loop = make_toy_loop(FormulaExecutor(), max_candidates=16)
    drive(loop)
    assert not counted.exists()
    assert not (loop.run.path / "profile").exists()
