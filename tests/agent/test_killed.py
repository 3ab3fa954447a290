"""kill -9 in every node: nothing is judged twice, nothing is lost, and the outcome is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kwiki_agent.runs import RunFolder
from kwiki_agent.trials import history
from kwiki_ingest.wiki import Wiki


def test_a_run_killed_in_every_node_ends_as_if_nothing_had_happened(
    task_dir: Path, wiki: Wiki, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.agent.killed", str(task_dir), str(wiki.root), str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, untroubled = RunFolder(tmp_path / "killed"), RunFolder(tmp_path / "untroubled")
    judged = (killed.path / "kept" / "judged.txt").read_text().splitlines()
    assert len(judged) == len(set(judged))
    assert [t.candidate.knobs for t in history(killed)] == [t.candidate.knobs for t in history(untroubled)]
    for name in ("promotions.jsonl", "diagnoses.jsonl", "lessons.jsonl"):
        assert len(list(killed.lines(name))) == len(list(untroubled.lines(name))), name
    assert (killed.path / "report.md").exists()
