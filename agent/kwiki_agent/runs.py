"""The record of a run on disk: enough for another engineer to see what was tried and why it ended so.

runs/<id>/contract.json          what was asked for; nothing may change it once the run began
runs/<id>/run.json               the contract's hash, the package's version, when it began
runs/<id>/checkpoint.sqlite      LangGraph's checkpoints
runs/<id>/candidates/<id>/       kernel.py, candidate.json, build.json
runs/<id>/submissions/           under the external policy, what was handed in, one file a round
runs/<id>/judge.secret           what the seeds of jobs are drawn from
runs/<id>/jobs/<job>/            job.json and one evaluation a candidate, baselines included
runs/<id>/candidates.jsonl       one line a candidate: what it tried, what came of it
runs/<id>/benchmark.csv          one line a measured candidate and workload
runs/<id>/retrievals.jsonl       what was asked of the wiki and which cards came back
runs/<id>/directions.json        ideas by rank, where the policy ranks them
runs/<id>/conversations/         under the claude policy, the messages of each round
runs/<id>/usage.jsonl            tokens, money and seconds of each message of a model
runs/<id>/reviews.jsonl          what the reviewer said of each promotion
runs/<id>/troubles.jsonl         rounds in which the policy proposed nothing, and why
runs/<id>/timeline.jsonl         seconds of each step, and of each wait inside one
runs/<id>/lessons.jsonl          proposals and what the write gate said
runs/<id>/report.md, progress.*  the story
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kwiki_kernels.atomic import write_whole
from kwiki_kernels.evaluation import Evaluation
from kwiki_kernels.job import Candidate, Job
from pydantic import ValidationError

from kwiki_agent import __version__
from kwiki_agent.contract import AgentError, Contract

REVIEWS, TROUBLES = "reviews.jsonl", "troubles.jsonl"


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes one run. Every write is atomic, and writing the same thing twice is harmless."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.sqlite"

    def submission(self, round_: int) -> Path:
        """The file that holds what was handed in for a round, under the external policy."""
        return self.path / "submissions" / f"r{round_:03d}.json"

    @property
    def contract(self) -> Contract:
        """What was asked for; raises AgentError where it is gone or another version wrote it."""
        try:
            return Contract.model_validate_json(self._contract_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AgentError(f"run '{self.id}' has no contract.json: put it back, or begin anew") from None
        except ValidationError as error:
            first = error.errors()[0]
            raise AgentError(
                f"{self._contract_file}: {'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}; "
                "it is damaged, or of another version of kernel-wiki"
            ) from None

    @property
    def contract_sha256(self) -> str:
        """Hash of the contract's file as it is now."""
        return hashlib.sha256(self._contract_file.read_bytes()).hexdigest()

    @property
    def _contract_file(self) -> Path:
        return self.path / "contract.json"

    def check_contract(self, began_with: str | None) -> None:
        """Refuse to go on under a contract that was changed, or with another version's code.

        Args:
            began_with: the hash that the run's first checkpoint holds, None before there is one.

        Raises:
            AgentError: the file, or this version, is not what the run began with.
        """
        if (begun_by := self.contract.kernel_wiki_version) != __version__:
            raise AgentError(
                f"run '{self.id}' was begun by kernel-wiki {begun_by} and this is {__version__}: resume it "
                "with that version, or take what it found into a new run with `kernel-agent fork`"
            )
        noted = json.loads((self.path / "run.json").read_text(encoding="utf-8")).get("contract_sha256")
        now = self.contract_sha256
        if any(before not in (None, now) for before in (noted, began_with)):
            raise AgentError(
                f"the contract of run '{self.id}' was changed after it began: put contract.json back, "
                "or start another run"
            )

    def save_candidate(self, candidate: Candidate) -> None:
        folder = self.path / "candidates" / candidate.id
        write_text(folder / "kernel.py", candidate.source)
        write_text(folder / "candidate.json", candidate.model_dump_json(indent=2, exclude={"source"}))

    def candidate(self, candidate_id: str) -> Candidate:
        folder = self.path / "candidates" / candidate_id
        return _candidate(folder, (folder / "candidate.json").stat().st_mtime_ns)

    def candidates(self) -> list[Candidate]:
        """All candidates in the order of their ids, which is the order of proposal."""
        whole = sorted(self.path.glob("candidates/*/candidate.json"))  # written last
        return [self.candidate(path.parent.name) for path in whole]

    def save_build(self, evaluation: Evaluation) -> None:
        write_text(self.build_file(evaluation.candidate_id), evaluation.model_dump_json(indent=2))

    def build_file(self, candidate_id: str) -> Path:
        return self.path / "candidates" / candidate_id / "build.json"

    def build(self, candidate_id: str) -> Evaluation | None:
        """The build-stage verdict (compiles or not, static reports), or None."""
        path = self.build_file(candidate_id)
        return Evaluation.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None

    def secret_seed(self, job_id: str) -> int:
        """Seed of a job's inputs: who proposes kernels cannot know it, and a job made again has it again."""
        secret = self.path / "judge.secret"
        if not secret.exists():
            write_text(secret, secrets.token_hex(16))
        digest = hashlib.sha256(f"{secret.read_text(encoding='utf-8')} {job_id}".encode()).digest()
        return int.from_bytes(digest[:4])

    def save_job(self, job: Job) -> None:
        write_text(self.path / "jobs" / job.id / "job.json", job.model_dump_json())

    def save_evaluations(self, job_id: str, evaluations: Iterable[Evaluation]) -> None:
        for evaluation in evaluations:
            write_text(self._evaluation_file(job_id, evaluation.candidate_id), evaluation.model_dump_json())

    def evaluations(self, job_id: str) -> dict[str, Evaluation]:
        """Verdicts of one judged job by candidate id; baselines are `baseline` and `baseline:<name>`."""
        found = (Evaluation.model_validate_json(path.read_bytes()) for path in self.evaluation_files(job_id))
        return {evaluation.candidate_id: evaluation for evaluation in found}

    def evaluation(self, job_id: str, candidate_id: str) -> Evaluation | None:
        """One verdict of a judged job, or None."""
        path = self._evaluation_file(job_id, candidate_id)
        return Evaluation.model_validate_json(path.read_bytes()) if path.exists() else None

    def evaluation_files(self, job_id: str) -> list[Path]:
        """The files of a judged job's verdicts, sorted."""
        return sorted((self.path / "jobs" / job_id / "evaluations").glob("*.json"))

    def _evaluation_file(self, job_id: str, candidate_id: str) -> Path:
        return self.path / "jobs" / job_id / "evaluations" / (candidate_id.replace(":", "-") + ".json")

    def judged_jobs(self) -> list[str]:
        """Ids of the jobs with evaluations, oldest first."""
        return sorted(folder.parent.name for folder in self.path.glob("jobs/*/evaluations"))

    def append_line(self, name: str, record: Any) -> None:
        """Add one JSON line to `name` unless it is there already (a resumed node runs again)."""
        line = json.dumps(record, default=str)
        path = self.path / name
        if path.exists() and line in path.read_text(encoding="utf-8").splitlines():
            return
        _append(path, line)

    def add_line(self, name: str, record: Any) -> None:
        """Add one JSON line to `name`, the same one again if it comes again: what was spent is spent."""
        _append(self.path / name, json.dumps(record, default=str))

    def lines(self, name: str) -> Iterator[Any]:
        """The records of `name`; half a line at the end, left by a crash, is no record."""
        path = self.path / name
        if path.exists():
            whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
            yield from map(json.loads, whole.splitlines())


@functools.lru_cache(maxsize=1 << 12)
def _candidate(folder: Path, written_ns: int) -> Candidate:
    """`written_ns` tells a candidate from the one that was there before."""
    del written_ns
    fields = json.loads((folder / "candidate.json").read_text(encoding="utf-8"))
    return Candidate(**fields, source=(folder / "kernel.py").read_text(encoding="utf-8"))


def _append(path: Path, line: str) -> None:
    """Add a line; half a line that a crash left at the end is cut off first."""
    with path.open("ab+") as stream:
        if stream.tell() and os.pread(stream.fileno(), 1, stream.tell() - 1) != b"\n":
            whole = path.read_bytes().rpartition(b"\n")[0]
            stream.truncate(len(whole) + 1 if whole else 0)
        stream.write(line.encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def create_run(root: Path, contract: Contract) -> RunFolder:
    """Make the folder of a new run and write its contract.

    Raises:
        AgentError: a run of that name exists, or it is no name for a folder.
    """
    if not re.fullmatch(r"\w[\w.-]*", contract.run_id):
        raise AgentError(
            f"'{contract.run_id}' cannot name a run: use letters, digits, '-', '_' and, not in front, '.'"
        )
    folder = root / contract.run_id
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise AgentError(
            f"run '{contract.run_id}' exists already: resume it or choose another name"
        ) from None
    run = RunFolder(folder)
    write_text(folder / "contract.json", contract.model_dump_json(indent=2))
    head = {
        "run": run.id, "contract_sha256": run.contract_sha256,
        "kernel_wiki_version": contract.kernel_wiki_version, "created": contract.created,
    }  # fmt: skip
    write_text(folder / "run.json", json.dumps(head, indent=2))  # last: a folder that has it is a run
    return run


def open_run(root: Path, run_id: str) -> RunFolder:
    """An existing run, by id or by path.

    Raises:
        AgentError: there is no such run.
    """
    for folder in (root / run_id, Path(run_id)):
        if (folder / "run.json").is_file():
            return RunFolder(folder)
    raise AgentError(f"no run '{run_id}' in {root}: `kernel-agent runs` lists them")


def list_runs(root: Path) -> list[RunFolder]:
    """All runs below `root`, newest first."""
    found = [(path.stat().st_mtime_ns, RunFolder(path.parent)) for path in root.glob("*/run.json")]
    return [run for _, run in sorted(found, key=lambda item: item[0], reverse=True)]


def write_text(path: Path, text: str) -> None:
    """Replace a text file in one step, so that no reader and no crash sees half of it."""
    write_whole(path, text.encode())
