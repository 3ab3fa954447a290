"""What the keeper believes of a child: messages in turn, and times that a kernel can reach."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kwiki_kernels.device import environment
from kwiki_kernels.evaluation import Status, Timing, WorkloadResult
from kwiki_kernels.job import Candidate, Protocol
from kwiki_kernels.judge import Bench, forged, judge
from kwiki_kernels.keeper import Course
from kwiki_kernels.messages import Built, Confined, Done, Judged, Message, Paused, Ready, Started
from kwiki_kernels.task import parse_task
from kwiki_kernels.watch import Watch

from tests.kernels.judge_samples import make_job, task_files

CONFINED, BUILT = Confined(isolation=()), Built(failures={}, reports=(), log="")
READY, PAUSED, DONE = Ready(), Paused(), Done()


def result(uuid: str, device_us: float = 9.0, floor_us: float | None = 5.0) -> WorkloadResult:
    timing = Timing(timer="cuda_graph", device_us=((device_us,) * 5,), host_us=2.0)
    return WorkloadResult(uuid=uuid, axes={}, status=Status.PASSED, timing=timing, floor_us=floor_us)


def run_of(uuid: str) -> list[Message]:
    return [Started(uuid=uuid), PAUSED, PAUSED, Judged(result=result(uuid))]


def answers(messages: Sequence[Message]) -> int:
    return sum(isinstance(message, Paused | Judged) for message in messages)


SMALL, WIDE = run_of("small"), run_of("wide")


@pytest.mark.parametrize(
    "messages",
    [
        [CONFINED, BUILT, READY, *SMALL, *WIDE, DONE],
        [CONFINED, BUILT, READY, *SMALL, *WIDE[:2]],
        [CONFINED, BUILT, READY, WIDE[0], WIDE[-1]],
        [CONFINED, BUILT, DONE],
        [CONFINED],
        [],
    ],
)
def test_messages_in_turn_are_believed(messages: list[Message]) -> None:
    assert not forged(Course(messages=messages, asked=answers(messages)))


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([CONFINED, *SMALL, BUILT, READY, DONE], id="a result before the build"),
        pytest.param([CONFINED, BUILT, READY, SMALL[-1]], id="a result of nothing begun"),
        pytest.param([CONFINED, BUILT, READY, SMALL[0], WIDE[-1]], id="a result of another workload"),
        pytest.param([CONFINED, BUILT, READY, *SMALL, SMALL[-1]], id="a second result"),
        pytest.param([CONFINED, BUILT, READY, *SMALL, PAUSED], id="a round after the result"),
        pytest.param([CONFINED, BUILT, READY, *SMALL, *SMALL], id="a second run"),
        pytest.param([CONFINED, BUILT, READY, *SMALL, DONE, DONE], id="a second end"),
        pytest.param([CONFINED, BUILT, READY, DONE, *SMALL], id="a result after the end"),
        pytest.param([BUILT, CONFINED, READY], id="confined after the build"),
    ],
)
def test_a_message_too_many_or_out_of_turn_is_a_forgery(messages: Sequence[Message]) -> None:
    assert forged(Course(messages=list(messages), asked=answers(messages)))


def test_an_answer_to_a_command_that_was_not_given_is_a_forgery() -> None:
    messages: list[Message] = [CONFINED, BUILT, READY, *SMALL]
    assert forged(Course(messages=messages, asked=answers(messages) - 1))


def verdict_on(outcome: WorkloadResult, protocol: Protocol) -> tuple[Status, str]:
    job = make_job(workload_uuids=("small",), protocol=protocol)
    bench = Bench(job, parse_task(task_files(), {}, origin="test"), environment(None), None)
    messages = [CONFINED, BUILT, READY, Started(uuid="small"), Judged(result=outcome), DONE]
    verdict = judge(Course(messages=messages, asked=1), bench, Candidate(id="c", source=""))
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
