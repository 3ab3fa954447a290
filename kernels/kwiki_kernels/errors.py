"""The error tree of the judge; `task.TaskError` belongs to it too.

A kernel that fails is never one of these: it is an Evaluation.
"""


class JudgeError(Exception):
    """What keeps the judge from working; the message is one sentence with the next step."""


class ArchError(JudgeError):
    """An architecture the judge does not know."""


class MachineError(JudgeError):
    """The machine is at fault: its GPU does not answer, or its disk is full. The job can be run again."""


class SpoolError(JudgeError):
    """A spool folder holds what cannot be read or trusted."""
