"""The error tree of the judge.

A kernel that fails is never one of these: it is an Evaluation.
"""


class JudgeError(Exception):
    """What keeps the judge from working; the message is one sentence with the next step."""


class TaskError(JudgeError):
    """A task folder that does not fulfil the contract; the message names file and field."""


class ArchError(JudgeError):
    """An architecture the judge does not know."""


class MachineError(JudgeError):
    """The machine is at fault: its GPU does not answer, or its disk is full. The job can be run again."""


class StaticReportError(JudgeError):
    """A cubin that cannot be read, or no tool to read it with."""


class ProfileError(JudgeError):
    """A profiler is missing, failed, or wrote what cannot be read."""


class TooLargeError(JudgeError):
    """A workload that this GPU's memory does not hold; the others can still be judged."""


class SpoolError(JudgeError):
    """A spool folder holds what cannot be read or trusted."""
