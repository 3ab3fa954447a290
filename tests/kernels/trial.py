"""A kernel and its examination in one process, where no cheat is feared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwiki_kernels.build import Launch
from kwiki_kernels.check import Finding
from kwiki_kernels.contestant import Runner
from kwiki_kernels.definition import Definition, Workload
from kwiki_kernels.evaluation import Status
from kwiki_kernels.examination import Examination
from kwiki_kernels.inputs import poisoned_outputs
from kwiki_kernels.terms import STATES_NONE, Terms


class Trial:
    """One kernel on one workload, on the CPU."""

    def __init__(
        self,
        launch: Launch,
        definition: Definition,
        workload: Workload,
        *,
        reference: Callable[..., Any],
        seed: int,
        terms: Terms = STATES_NONE,
    ) -> None:
        self.examination = Examination(
            definition, workload, reference=reference, seed=seed, device="cpu", terms=terms
        )
        outputs = poisoned_outputs(definition, workload, "cpu")
        self.runner = Runner(launch, self.examination.values(0), outputs)
        self.contest_passed: bool | None = None

    def check(self) -> Finding:
        """Two calls on the same buffers with different values."""
        finding = self.verify(0)
        return self.verify(1) if finding.status is Status.PASSED else finding

    def verify(self, number: int) -> Finding:
        """One call on the values of a set."""
        inputs, outputs = self.runner.inputs, self.runner.outputs
        self.examination.refresh(number, inputs, outputs)
        finding = self.examination.verify(number, inputs, self.runner.call())
        if finding.contest_passed is not None:
            self.contest_passed = self.contest_passed is not False and finding.contest_passed
        return finding
