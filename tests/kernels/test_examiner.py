"""The answers stay with the examiner: what a candidate's process gets, and what passes between the two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kwiki_kernels.arena import FileArena, plan, values_in
from kwiki_kernels.device import environment
from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Evaluation, Status
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import Entry, request_for, run_job
from kwiki_kernels.messages import Placement
from kwiki_kernels.task import parse_task
from kwiki_kernels.verdict import Bench

from tests.kernels.judge_samples import BASELINE, HONEST, REFERENCE, make_job, task_files

TASK = parse_task(task_files(), {}, origin="test")
LOOKS = """
import re
import sys
from pathlib import Path
import torch

def run(x, eps, y):
    {look}
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps))
"""
SEARCHES_ITS_MEMORY = """
    for line in open("/proc/self/maps").read().splitlines():
        span, rights = line.split()[:2]
        start, end = (int(word, 16) for word in span.split("-"))
        if rights[:2] != "rw" or end - start > 1 << 26: continue
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            try: page = memory.read(end - start)
            except (OSError, ValueError): continue
        if re.search(rb"a text that only t[h]e reference h[a]s", page): raise ValueError("found it")
"""


def checked(source: str, **fields: object) -> Evaluation:
    few = {"protocol": Protocol(warmup=0, iterations=1, rounds=1), "workload_uuids": ("small",)}
    (verdict,) = run_job(make_job(source, stage="check", **{**few, **fields}))
    return verdict


def test_a_candidates_process_is_told_neither_seed_nor_reference_nor_baseline() -> None:
    job = make_job(HONEST, seed=123456789)
    bench = Bench(job, TASK, environment(None), None)
    told = request_for(bench, Entry(job.candidates[0], baseline=False)).model_dump_json()
    assert "123456789" not in told
    for text in (REFERENCE, BASELINE):
        assert text.strip().splitlines()[-1].strip() not in told
    assert '"name":"normalise_rows"' in told


def test_the_reference_is_not_in_the_memory_of_the_process_that_the_candidate_searches() -> None:
    reference = REFERENCE + "\nMARK = 'a text that only the reference has'\n"
    job = {"task_files": task_files(**{"reference.py": reference})}
    assert (
        checked(LOOKS.format(look=SEARCHES_ITS_MEMORY.strip()), **job).log
        == "right on the CPU; nothing was measured"
    )
    own = "MARK = 'a text that only the reference has'\n"
    found = checked(own + LOOKS.format(look=SEARCHES_ITS_MEMORY.strip()), **job)
    assert "found it" in found.log, "the search finds what is there"


def test_a_candidate_sees_no_folder_but_its_own_arena() -> None:
    look = "assert len(list(Path.cwd().glob('arena-*'))) == 1 and 'reference' not in sys.modules"
    assert checked(LOOKS.format(look=look)).status is Status.UNMEASURED


def test_inputs_that_change_between_calls_arrive_in_the_same_buffers() -> None:
    look = (
        "seen = sys.modules.setdefault('seen', [])\n"
        "    seen.append((x.data_ptr(), float(x.float().sum())))\n"
        "    assert len({place for place, _ in seen}) == 1\n"
        "    assert len(seen) < 3 or len({total for _, total in seen}) == 3"
    )
    assert checked(LOOKS.format(look=look)).status is Status.UNMEASURED


def test_an_output_that_a_kernel_returns_is_handed_over() -> None:
    verdict = checked(BASELINE)
    assert verdict.status is Status.UNMEASURED, verdict.log
    assert verdict.results[0].error is not None


def test_a_reference_that_takes_too_long_is_the_tasks_fault() -> None:
    slow = REFERENCE.replace("    return", "    import time; time.sleep(30)\n    return")
    files = task_files(**{"reference.py": slow})
    limits = Protocol(warmup=0, iterations=1, rounds=1, judge_timeout_s=2)
    with pytest.raises(TaskError, match="inputs or reference took longer than 2 s"):
        checked(HONEST, task_files=files, protocol=limits)


def test_two_processes_see_the_same_tensors_in_an_arena(tmp_path: Path) -> None:
    inputs = [torch.arange(6, dtype=torch.int32).view(2, 3), 0.5, torch.empty(0, 4), torch.tensor(7.0)]
    placement = plan(inputs, TASK.definition, {"rows": 4, "width": 64})
    placement = Placement.model_validate_json(placement.model_dump_json())
    ours = FileArena(tmp_path / "arena", placement.size, create=True)
    for buffer, value in zip(values_in(ours, placement.inputs), inputs, strict=True):
        if isinstance(buffer, torch.Tensor):
            buffer.copy_(value)
    theirs = FileArena(tmp_path / ours.handle, placement.size, create=False)
    ints, number, nothing, scalar = values_in(theirs, placement.inputs)
    (y,) = values_in(theirs, placement.outputs)
    assert ints.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (number, tuple(nothing.shape), scalar.item()) == (0.5, (0, 4), 7.0)
    assert (y.dtype, tuple(y.shape)) == (torch.bfloat16, (4, 64))
    y.fill_(3)
    assert values_in(ours, placement.outputs)[0].unique().tolist() == [3]
    offsets = [slot.offset for slot in (*placement.inputs, *placement.outputs) if hasattr(slot, "offset")]
    assert all(offset % 512 == 0 for offset in offsets)
    ours.close()
    assert not (tmp_path / "arena").exists()


def test_one_candidate_cannot_open_the_arena_of_another() -> None:
    look = "assert not list(Path.cwd().parent.glob('*/arena-*'))"
    sources = tuple(Candidate(id=f"c{n}", source=LOOKS.format(look=look)) for n in range(2))
    protocol = Protocol(order="interleaved", rounds=2, warmup=0, iterations=2)
    job = make_job(candidates=sources, stage="check", protocol=protocol, workload_uuids=("small",))
    isolated = job.model_copy(update={"defences": job.defences.model_copy(update={"isolation": ("files",)})})
    for verdict in run_job(isolated):
        notes = dict(note.split(": ", 1) for note in verdict.environment.isolation)
        if notes["files"].startswith("open"):
            pytest.skip("this kernel does not offer Landlock")
        assert verdict.status is Status.UNMEASURED, verdict.log
