"""One candidate on one workload, as the keeper conducts it: prepare, rounds, finish.

The candidate's process calls and times, the examiner's fills and looks, and neither sees the other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection
from typing import Concatenate, ParamSpec, TypeVar

from kwiki_kernels.audit import OwnKernels
from kwiki_kernels.evaluation import Status, Timing, WorkloadResult
from kwiki_kernels.examiner_client import ExaminerClient
from kwiki_kernels.keeper import Child
from kwiki_kernels.messages import Command, Fell, Found, FromCandidate, Paused, Placed, Timed, TooLarge
from kwiki_kernels.sensors import Reading, Sensors, conditions, disturbance

CHECKED_VALUES = (0, 1)
TIMED_VALUES = 2
"""Number of the set of values that timed calls are verified on."""

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

_keys = itertools.count()


def _on_the_clock(
    step: Callable[Concatenate[Bout, Arguments], Returned],
) -> Callable[Concatenate[Bout, Arguments], Returned]:
    """The time of a step is the candidate's, though the examiner may have spent it."""

    def clocked(bout: Bout, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Returned:
        with bout.child.course.clocked("gpu"):
            return step(bout, *arguments, **named)

    return functools.update_wrapper(clocked, step)


class Bout:
    """Steps that say whether the bout goes on; when it does not, `result` says why, if the child lives.

    On a GPU each round is timed, and the last call of the last one verified. On the CPU as many calls
    as one round would time are spread over the rounds, and each is verified.
    """

    def __init__(self, child: Child, examiner: ExaminerClient, uuid: str) -> None:
        self.child, self.examiner, self.uuid = child, examiner, uuid
        self.key = str(next(_keys))
        self.on_gpu = child.request.measure
        self.protocol = child.request.job.protocol
        self.held_out = child.request.task.workload(uuid).held_out
        self.placed: Placed | None = None
        self.found: Found | None = None
        self.contest_passed: bool | None = None
        self.timed: Timed | None = None
        self.rounds: list[tuple[float, ...]] = []
        self.readings: list[Reading] = []
        self.status, self.log, self.broken = Status.PASSED, "", ""

    @property
    def disturbed(self) -> str:
        """What spoilt the rounds so far."""
        return disturbance(conditions(self.readings))

    @_on_the_clock
    def prepare(self) -> bool:
        """Check, and make ready to be timed."""
        placed = self.examiner.place(self.uuid, self.key, self.child.folder)
        if isinstance(placed, TooLarge):
            return self._too_large(placed)
        self.placed = placed
        command = Command(do="bind", uuid=self.uuid, placement=placed.placement)
        right = self._tell(command) and self._checked()
        if not right or self.held_out:  # such a workload is checked, and that is all
            return False
        return not self.on_gpu or self._tell(self._command("arm"))

    def begin_rounds(self) -> None:
        """Forget rounds that were timed before."""
        self.rounds.clear()
        self.readings.clear()

    @_on_the_clock
    def refresh(self, *, last: bool) -> bool:
        """Before a round: other values for the last one, which `finish` verifies."""
        return not self.on_gpu or not last or self._refreshed(TIMED_VALUES)

    @_on_the_clock
    def round(self) -> bool:
        """One round."""
        if not self.on_gpu:
            calls = self.protocol.warmup + self.protocol.iterations
            return all(self._verified_call() for _ in range(-(-calls // self.protocol.rounds)))
        return self._tell(self._command("round"))

    def read(self, sensors: Sensors, ours: Collection[int]) -> None:
        """Note how the GPU is, where it tells."""
        try:
            self.readings.append(sensors.read(ours))
        except OSError:
            self.readings.clear()

    @_on_the_clock
    def finish(self) -> bool:
        """Verify what the timed calls left behind, and ask how they were timed."""
        if not self.on_gpu:
            return True
        return self._verified(TIMED_VALUES, "wrong in the timed calls, though right before") and self._tell(
            self._command("finish")
        )

    @_on_the_clock
    def leave(self) -> None:
        """Both processes let go of the workload; the result falls, if the child is still there."""
        child = self.child
        lost = self.on_gpu and self.status is Status.RUNTIME_ERROR
        if self.placed and not child.gone and not lost:
            self._tell(self._command("leave"))
        if not child.gone:
            child.course.results[self.uuid] = self.result()
        if lost:  # a CUDA error sticks to the context: nothing after it could be believed
            child.dismiss()
        self.examiner.drop(self.key)

    def result(self) -> WorkloadResult:
        """What is known by now."""
        task, candidate, placed = self.child.request.task, self.child.request.candidate, self.placed
        assert candidate is not None
        axes = task.definition.axis_values(task.workload(self.uuid).axes)
        status, log = self._verdict()
        return WorkloadResult(
            uuid=self.uuid,
            axes=axes,
            held_out=self.held_out,
            knobs=candidate.knobs_for(axes),
            status=status,
            log=log,
            error=self.found.error if self.found else None,
            timing=self._timing() if status is Status.PASSED else None,
            contest_passed=self.contest_passed,
            bytes_moved=placed.bytes_moved if placed else None,
            flops=placed.flops or None if placed else None,
            roofline_us=placed.roofline_us if placed else None,
            floor_us=placed.floor_us if placed else None,
        )

    def _verdict(self) -> tuple[Status, str]:
        if self.broken:  # whatever it computed
            return Status.REJECTED, self.broken
        if self.status is not Status.PASSED:
            return self.status, self.log
        if not self.on_gpu:
            return Status.UNMEASURED, "right on the CPU; nothing was measured"
        return self._timed_verdict(self.timed) if self.timed else (Status.PASSED, "")

    def _timed_verdict(self, timed: Timed) -> tuple[Status, str]:
        """Whether every timed call worked, by the candidate's own kernels."""
        if timed.idle:
            calls = self.protocol.iterations
            return Status.REJECTED, f"{timed.idle} of {calls} timed calls did not work"
        candidate = self.child.request.candidate
        assert candidate is not None
        foreign = OwnKernels.of(candidate.source).foreign(timed.kernels)
        if foreign:
            return Status.REJECTED, f"a kernel ran that the candidate did not write: {foreign[0]}"
        return Status.PASSED, timed.note

    def _timing(self) -> Timing | None:
        if self.timed is None:
            return None
        return Timing(
            timer=self.timed.timer,
            device_us=tuple(self.rounds),
            host_us=self.timed.host_us,
            span_us=self.timed.span_us,
            order=self.protocol.order,
            conditions=conditions(self.readings),
            disturbed=self.disturbed,
        )

    def _checked(self) -> bool:
        """One call on each of two sets of values."""
        return all(
            (number == 0 or self._refreshed(number))
            and self._tell(self._command("call"))
            and self._verified(number)
            for number in CHECKED_VALUES
        )

    def _verified_call(self) -> bool:
        return (
            self._refreshed(TIMED_VALUES)
            and self._tell(self._command("round"))
            and self._verified(TIMED_VALUES, "wrong in a later call, though right before")
        )

    def _refreshed(self, number: int) -> bool:
        answer = self.examiner.refresh(self.key, number)
        return not isinstance(answer, TooLarge) or self._too_large(answer)

    def _verified(self, number: int, otherwise: str = "") -> bool:
        found = self.examiner.verify(self.key, number)
        if isinstance(found, TooLarge):
            return self._too_large(found)
        self.found = found
        if found.contest_passed is not None:
            self.contest_passed = self.contest_passed is not False and found.contest_passed
        if found.status is Status.PASSED:
            return True
        return self._over(found.status, f"{otherwise}: {found.log}" if otherwise else found.log)

    def _too_large(self, answer: TooLarge) -> bool:
        return self._over(Status.UNMEASURED, f"too large for this GPU: {answer.log}")

    def _over(self, status: Status, log: str) -> bool:
        self.status, self.log = status, log
        return False

    def _command(self, do: str) -> Command:
        return Command.model_validate({"do": do, "uuid": self.uuid})

    def _tell(self, command: Command) -> bool:
        answer = self.child.ask(command, Timed if command.do == "finish" else Paused)
        if not isinstance(answer, FromCandidate):
            return False
        self.broken = self.broken or answer.broken
        if isinstance(answer, Fell):
            return self._over(answer.status, answer.log)
        if isinstance(answer, Timed):
            self.timed = answer
        elif answer.device_us:
            self.rounds.append(answer.device_us)
        return not self.broken
