"""What the keeper believes of a child: messages in turn, and times that a kernel can reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kwiki_kernels.course import Course
from kwiki_kernels.device import environment
from kwiki_kernels.evaluation import Status, Timing, WorkloadResult
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.messages import Built, Confined, Done, Fell, Message, Paused, Ready, Timed
from kwiki_kernels.task import parse_task
from kwiki_kernels.verdict import Bench, forged, judge
from kwiki_kernels.watch import Watch

from tests.kernels.judge_samples import make_job, task_files

CONFINED, BUILT = Confined(isolation=()), Built(failures={}, reports=(), log="")
READY, PAUSED, DONE = Ready(), Paused(), Done()
TIMED = Timed(
    broken="", timer="cuda_graph", note="", host_us=2.0, span_us=None, idle=0, kernels=()
)  # fmt: skip
FELL = Fell(status=Status.RUNTIME_ERROR, log="", broken="")
ANSWERS = (Paused, Timed, Fell)


def result(uuid: str, device_us: float = 9.0, floor_us: float | None = 5.0) -> WorkloadResult:
    timing = Timing(timer="cuda_graph", device_us=((device_us,) * 5,), host_us=2.0)
    return WorkloadResult(uuid=uuid, axes={}, status=Status.PASSED, timing=timing, floor_us=floor_us)


def course(messages: Sequence[Message], too_many: int = 0) -> Course:
    """One in which all answers but so many were asked for."""
    asked = sum(isinstance(message, ANSWERS) for message in messages) - too_many
    return Course(messages=list(messages), asked=asked)


@pytest.mark.parametrize(
    "messages",
    [
        [CONFINED, BUILT, READY, PAUSED, PAUSED, TIMED, PAUSED, DONE],
        [CONFINED, BUILT, READY, PAUSED, FELL, PAUSED],
        [CONFINED, BUILT, DONE],
        [CONFINED],
        [],
    ],
)
def test_messages_in_turn_are_believed(messages: list[Message]) -> None:
    assert not forged(course(messages))


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([CONFINED, PAUSED, BUILT, READY, DONE], id="an answer before the build"),
        pytest.param([CONFINED, BUILT, PAUSED, READY], id="an answer before the GPU is open"),
        pytest.param([CONFINED, BUILT, READY, TIMED, DONE, DONE], id="a second end"),
        pytest.param([CONFINED, BUILT, READY, DONE, PAUSED], id="an answer after the end"),
        pytest.param([BUILT, CONFINED, READY], id="confined after the build"),
    ],
)
def test_a_message_out_of_turn_is_a_forgery(messages: Sequence[Message]) -> None:
    assert forged(course(messages))


def test_an_answer_to_a_command_that_was_not_given_is_a_forgery() -> None:
    assert forged(course([CONFINED, BUILT, READY, PAUSED, PAUSED, TIMED, PAUSED], too_many=1))


def verdict_on(outcome: WorkloadResult, protocol: Protocol) -> tuple[Status, str]:
    job = make_job(workload_uuids=("small",), protocol=protocol)
    bench = Bench(job, parse_task(task_files(), {}, origin="test"), environment(None), None)
    seen = course([CONFINED, BUILT, READY, DONE])
    seen.results["small"] = outcome
    verdict = judge(seen, bench, Candidate(id="c", source=""))
    return verdict.status, verdict.log


def test_a_time_below_the_physical_floor_is_rejected_in_one_sentence() -> None:
    status, log = verdict_on(result("small", device_us=0.001), Protocol())
    assert status is Status.REJECTED
    assert log == "workload small: 0.001 us is less than any kernel needs here: at least 5 us"


def test_a_time_at_the_floor_a_warm_l2_and_an_unknown_gpu_are_not_rejected() -> None:
    assert verdict_on(result("small", device_us=5.0), Protocol())[0] is Status.PASSED
    assert verdict_on(result("small", device_us=1.0), Protocol(cold_l2=False))[0] is Status.PASSED
    assert verdict_on(result("small", device_us=1.0, floor_us=None), Protocol())[0] is Status.PASSED


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32", "uint8"])
def test_calls_that_leave_the_poison_are_counted(dtype: str) -> None:
    import torch

    output = torch.ones(8, dtype=getattr(torch, dtype))
    watch = Watch(4, "cpu")
    for number in range(4):
        watch.before([output])
        if number in {1, 3}:
            output.fill_(1)
        watch.after(number, [output])
    assert watch.idle() == 2
