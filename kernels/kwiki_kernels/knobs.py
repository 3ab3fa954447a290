"""The typed search space of a kernel, and the rules that its points must keep."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import Field, model_validator

from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Knobs, KnobValue, Record


class KnobSpec(Record):
    """One dimension of the search space: its values in a meaningful order."""

    values: tuple[KnobValue, ...] = Field(min_length=1)
    description: str = ""


class KnobSpace(Record):
    """The typed search space of a task's seed kernel.

    Constraints are arithmetic comparisons over knob names and axis names; a point is valid for a
    workload when all hold.
    """

    knobs: dict[str, KnobSpec]
    default: Knobs
    constraints: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> KnobSpace:
        try:
            self.check(self.default)
        except TaskError as error:
            raise ValueError(f"default: {error}") from error
        for rule in self.constraints:
            try:
                names_in(rule)
            except SyntaxError as error:
                raise ValueError(f"constraint '{rule}' is no expression: {error.msg}") from error
        return self

    def check(self, knobs: Mapping[str, KnobValue]) -> None:
        """Refuse unknown knobs and values outside the space, naming them.

        Raises:
            TaskError: a knob or value is unknown, or one is missing.
        """
        for name, value in knobs.items():
            if name not in self.knobs:
                raise TaskError(f"unknown knob '{name}'; this task has: {', '.join(self.knobs)}")
            if value not in self.knobs[name].values:
                allowed = ", ".join(map(str, self.knobs[name].values))
                raise TaskError(f"knob '{name}' cannot be {value!r}; allowed: {allowed}")
        if missing := self.knobs.keys() - knobs.keys():
            raise TaskError(f"knobs without a value: {', '.join(sorted(missing))}")

    def valid(self, knobs: Mapping[str, KnobValue], axes: Mapping[str, int]) -> bool:
        """Whether every constraint holds for these knobs on a workload with these axes."""
        return all(holds(rule, {**axes, **knobs}) for rule in self.constraints)

    def points(self) -> Iterator[Knobs]:
        """Every combination of knob values, in order; constraints are not applied."""
        names = list(self.knobs)
        for values in itertools.product(*(self.knobs[name].values for name in names)):
            yield dict(zip(names, values, strict=True))


def names_in(rule: str) -> set[str]:
    """The names that an expression speaks of.

    Raises:
        SyntaxError: it is none.
    """
    return {node.id for node in ast.walk(ast.parse(rule, mode="eval")) if isinstance(node, ast.Name)}


def holds(rule: str, names: Mapping[str, KnobValue]) -> bool:
    """Whether an arithmetic comparison over `names` is true, e.g. `rows * width <= 1024`.

    A rule that speaks of a name not given (a tensor of a captured workload, say) holds.

    Raises:
        TaskError: the rule is not such a comparison.
    """
    try:
        if names_in(rule) - names.keys():
            return True
        return bool(evaluate(ast.parse(rule, mode="eval").body, names))
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError) as error:
        raise TaskError(f"constraint '{rule}' cannot be evaluated: {error}") from error


_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Pow: operator.pow,
    ast.In: lambda value, values: value in values, ast.NotIn: lambda value, values: value not in values,
}  # fmt: skip


def evaluate(node: ast.expr, names: Mapping[str, KnobValue]) -> Any:  # noqa: PLR0911 - one for each kind
    """The value of arithmetic and comparisons over `names`.

    Raises:
        TypeError: there is something else in the expression.
        KeyError: a name is not given.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](evaluate(left, names), evaluate(right, names))
        case ast.BoolOp(op=op, values=values):
            combine = all if isinstance(op, ast.And) else any
            return combine(evaluate(value, names) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not evaluate(operand, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, names)
        case ast.List(elts=values) | ast.Tuple(elts=values) | ast.Set(elts=values):
            return [evaluate(value, names) for value in values]
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [evaluate(value, names) for value in (left, *comparators)]
            return all(_OPERATORS[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
    raise TypeError(f"{type(node).__name__} is not allowed in a constraint")
