"""A folder of jobs and verdicts, the only thing that a tuning machine and a GPU machine share.

jobs/<job>.json                   written by the tuning machine
results/<job>/<candidate>.json    one Evaluation each, as it falls
results/<job>/done.json           sha256 of each of them, written last: the job is over
results/<job>/failed.json         one sentence: the job cannot be processed

Every file appears whole, by renaming, so that the folder can be copied or synced at any moment. A
verdict once written stays, so that two workers on one folder waste time and spoil nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kwiki_kernels.atomic import write_whole
from kwiki_kernels.errors import SpoolError
from kwiki_kernels.evaluation import Evaluation, Record
from kwiki_kernels.job import Job

FORMAT = 1


class Done(Record):
    """The seal of a finished job."""

    format: Literal[1] = 1
    job_sha256: str
    """Of the job's file."""
    sha256: dict[str, str]
    """Candidate id to the hash of its result file, in the job's order."""


class Failure(Record):
    """Why a job cannot be processed; void once its file is another one, as when a copy was not over yet."""

    format: Literal[1] = 1
    job_sha256: str
    message: str


def write_job(folder: Path, job: Job) -> Path:
    """Put a job into the folder; the same job again changes nothing.

    Raises:
        SpoolError: another job of that id is there.
    """
    path = _job_path(folder, job.id)
    data = job.model_dump_json().encode()
    if path.exists() and path.read_bytes() != data:
        raise SpoolError(f"{path} holds another job: take a new job id")
    write_whole(path, data)
    return path


def read_jobs(folder: Path) -> Iterator[Path]:
    """The files of all jobs without an outcome, oldest name first."""
    for path in sorted((folder / "jobs").glob("*.json")):
        results = folder / "results" / path.stem
        if not (results / "done.json").exists() and _failure(folder, path) is None:
            yield path


def read_job(path: Path) -> Job:
    """Read one job file.

    Raises:
        SpoolError: it is damaged, of another format version, or not the job that its name says.
    """
    try:
        raw = json.loads(path.read_bytes())
    except ValueError as error:
        raise SpoolError(f"{path.name} is not a job: {_first_line(error)}") from error
    written_by = raw.get("kernel_wiki_version", "unknown") if isinstance(raw, dict) else "unknown"
    found = raw.get("format") if isinstance(raw, dict) else None
    if found != FORMAT:
        raise SpoolError(
            f"{path.name} has job format {found} (kernel-wiki {written_by}), this kernel-wiki reads "
            f"{FORMAT}: use the same version on both machines"
        )
    try:
        job = Job.model_validate(raw)
    except ValidationError as error:
        raise SpoolError(
            f"{path.name}, written by kernel-wiki {written_by}, is not a job here: {_first_line(error)}"
        ) from error
    if path.stem != file_stem(job.id):
        raise SpoolError(f"{path.name} holds job '{job.id}': it was renamed; write it again")
    return job


def write_result(folder: Path, evaluation: Evaluation) -> None:
    """Put one verdict into the folder, unless a sealed job or a verdict on the same code is there."""
    path = _result_path(folder, evaluation.job_id, evaluation.candidate_id)
    standing = _standing(path)
    same_code = standing is not None and standing.code_hash == evaluation.code_hash
    if same_code or (path.parent / "done.json").exists():
        return
    write_whole(path, evaluation.model_dump_json().encode())


def finished_candidates(folder: Path, job: Job) -> dict[str, Evaluation]:
    """Verdicts already there, by candidate; unreadable or foreign ones count as not there."""
    hashes = {candidate.id: candidate.code_hash for candidate in job.candidates}
    found = {}
    for path in sorted((folder / "results" / file_stem(job.id)).glob("*.json")):
        if path.name in {"done.json", "failed.json"}:
            continue
        evaluation = _standing(path)
        if evaluation is None:
            continue
        name = evaluation.candidate_id
        same_code = evaluation.code_hash == hashes.get(name, evaluation.code_hash)
        if evaluation.job_id == job.id and path.stem == file_stem(name) and same_code:
            found[name] = evaluation
    return found


def write_done(folder: Path, job: Job, order: list[str]) -> None:
    """Seal a job whose results are all written; `order` is the candidates' ids."""
    hashes = {name: _sha256(_result_path(folder, job.id, name).read_bytes()) for name in order}
    done = Done(job_sha256=_sha256(_job_path(folder, job.id).read_bytes()), sha256=hashes)
    write_whole(folder / "results" / file_stem(job.id) / "done.json", done.model_dump_json().encode())


def write_failure(folder: Path, job_file: Path, message: str) -> None:
    """Say why a job cannot be processed."""
    path = folder / "results" / job_file.stem / "failed.json"
    failure = Failure(job_sha256=_sha256(job_file.read_bytes()), message=message)
    write_whole(path, failure.model_dump_json().encode())


def read_results(folder: Path, job_id: str) -> list[Evaluation] | None:
    """All verdicts of a job, or None while it is not over.

    Raises:
        SpoolError: the job failed, or what is there is damaged, changed, of another job or version.
    """
    results, job_path = folder / "results" / file_stem(job_id), _job_path(folder, job_id)
    if failure := _failure(folder, job_path):
        raise SpoolError(f"job {job_id} was not processed: {failure.message}")
    try:
        sealed = Done.model_validate_json((results / "done.json").read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise SpoolError(
            f"{results / 'done.json'} is damaged or of another version: {_first_line(error)}; copy the "
            "results folder again, from a worker of this version"
        ) from error
    if job_path.exists() and _sha256(job_path.read_bytes()) != sealed.job_sha256:
        raise SpoolError(f"{results} holds the verdicts of another job of that name: remove it")
    return [_read_result(folder, job_id, name, digest) for name, digest in sealed.sha256.items()]


def file_stem(name: str) -> str:
    """An id as a file name; what a file name cannot hold is written as `_` and a hash keeps it apart."""
    safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
    if safe == name and name not in {"done", "failed"} and not name.startswith("."):
        return name
    return f"{safe.lstrip('.')}-{_sha256(name.encode())[:8]}"


def _failure(folder: Path, job_path: Path) -> Failure | None:
    try:
        text = (folder / "results" / job_path.stem / "failed.json").read_bytes()
        failure = Failure.model_validate_json(text)
    except (FileNotFoundError, ValidationError):
        return None
    same = not job_path.exists() or _sha256(job_path.read_bytes()) == failure.job_sha256
    return failure if same else None


def _standing(path: Path) -> Evaluation | None:
    try:
        return Evaluation.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _read_result(folder: Path, job_id: str, name: str, digest: str) -> Evaluation:
    path = _result_path(folder, job_id, name)
    try:
        data = path.read_bytes()
        if _sha256(data) != digest:
            raise SpoolError(
                f"{path} was changed after the job was done: remove its results and run the worker again"
            )
        evaluation = Evaluation.model_validate_json(data)
    except FileNotFoundError as error:
        raise SpoolError(f"{path} is missing: copy the results folder again") from error
    except ValidationError as error:
        raise SpoolError(f"{path} is of another version: {_first_line(error)}") from error
    if (evaluation.job_id, evaluation.candidate_id) != (job_id, name):
        raise SpoolError(
            f"{path} speaks of {evaluation.job_id}/{evaluation.candidate_id}, not of {job_id}/{name}"
        )
    return evaluation


def _job_path(folder: Path, job_id: str) -> Path:
    return folder / "jobs" / f"{file_stem(job_id)}.json"


def _result_path(folder: Path, job_id: str, candidate_id: str) -> Path:
    return folder / "results" / file_stem(job_id) / f"{file_stem(candidate_id)}.json"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")
        return f"{'.'.join(map(str, first['loc'])) or 'top level'}: {said}"
    return str(error).splitlines()[0]
