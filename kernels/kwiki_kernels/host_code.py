"""Whether the code around a kernel computes with tensors, which is the kernel's own work.

Follows the tensors that enter `run`, a launch's `__call__` or what `build` returns, and those that
host code allocates: through assignments, loops, containers and calls to functions of the same
module. They may be asked for what they are, viewed otherwise, zeroed and passed on. Code under a
decorator of the DSL is the kernel and not looked at.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kwiki_kernels.names import dotted, imported_names

DEVICE = {
    "cutlass.cute.jit", "cutlass.cute.kernel", "cutlass.jit", "cutlass.kernel",
    "triton.autotune", "triton.heuristics", "triton.jit",
}  # fmt: skip
ALLOCATES = {"torch.empty", "torch.empty_like", "torch.empty_strided", "torch.zeros", "torch.zeros_like"}
FACTS = {"device", "dtype", "is_cuda", "itemsize", "layout", "nbytes", "ndim", "shape"}
ASKS = {
    "data_ptr", "dim", "element_size", "get_device", "is_contiguous", "item", "numel", "size",
    "storage_offset", "stride", "tolist",
}  # fmt: skip
VIEWS = {
    "as_strided", "chunk", "contiguous", "detach", "expand", "expand_as", "fill_", "flatten", "narrow",
    "new_empty", "new_zeros", "permute", "reshape", "select", "split", "squeeze", "t", "transpose", "unbind",
    "unflatten", "unsqueeze", "view", "view_as", "zero_", "T", "mT",
}  # fmt: skip
"""Methods that give another view, a fresh buffer or a constant fill."""
PASSES = {"all", "any", "enumerate", "getattr", "hasattr", "isinstance", "len", "list", "tuple", "zip"}

Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Refusal:
    """Why a text is refused, and at which line; `what` continues the sentence 'line 3 ...'."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line} {self.what}"


def computations(tree: ast.Module) -> Iterator[Refusal]:
    """Every place where host code computes with a tensor, writes to one or takes one apart."""
    module = _Module(tree)
    for owner, function in module.entries():
        module.enter(function, owner, frozenset(_parameters(function)))
    yield from module.refusals


@dataclass
class _Module:
    tree: ast.Module
    refusals: list[Refusal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.imports = imported_names(self.tree)
        self.functions = {f.name: f for f in self.tree.body if isinstance(f, ast.FunctionDef)}
        self.classes = {c.name: c for c in self.tree.body if isinstance(c, ast.ClassDef)}
        self.seen: dict[tuple[int, frozenset[str]], bool] = {}

    def entries(self) -> Iterator[tuple[ast.ClassDef | None, Function]]:
        """What the judge will call with tensors."""
        if run := self.functions.get("run"):
            yield None, run
        if build := self.functions.get("build"):
            for node in ast.walk(build):
                if isinstance(node, ast.FunctionDef) and node is not build:
                    yield None, node
                elif isinstance(node, ast.Return):
                    yield from ((None, found) for found in ast.walk(node) if isinstance(found, ast.Lambda))
                    for name in ast.walk(node):  # `return launch` and `return partial(launch, compiled)`
                        if isinstance(name, ast.Name) and name.id in self.functions:
                            yield None, self.functions[name.id]
        for owner in (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)):
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__call__":
                    yield owner, node

    def enter(self, function: Function, owner: ast.ClassDef | None, tensors: frozenset[str]) -> bool:
        """Follow `tensors`, names of parameters, through a function; whether it returns one."""
        if isinstance(function, ast.FunctionDef) and self.on_device(function):
            return False
        key = (id(function), tensors)
        if key not in self.seen:
            self.seen[key] = False  # a recursive call
            flow = _Flow(self, owner, set(tensors - {"self"}))
            self.seen[key] = flow.follow(function)
        return self.seen[key]

    def on_device(self, function: ast.FunctionDef) -> bool:
        decorators = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
        return any(dotted(decorator, self.imports) in DEVICE for decorator in decorators)

    def callee(self, call: ast.Call, owner: ast.ClassDef | None) -> Function | None:
        """The function of this module that a call goes to, if it is one."""
        match call.func:
            case ast.Name(id=name):
                return self.functions.get(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if owner:
                methods = (m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == name)
                return next(methods, None)
        return None


@dataclass
class _Flow:
    """Which names of one function hold tensors, whatever the order of its statements."""

    module: _Module
    owner: ast.ClassDef | None
    tensors: set[str]
    returns: bool = False

    def follow(self, function: Function) -> bool:
        if isinstance(function, ast.Lambda):
            self.returns = self.holds(function.body)
            nodes = list(ast.walk(function.body))
        else:
            nodes = [node for statement in function.body for node in self.walk(statement)]
            before = -1
            while len(self.tensors) != before:
                before = len(self.tensors)
                for node in nodes:
                    self.bind(node)
        self.module.refusals += [refusal for node in nodes for refusal in self.check(node)]
        return self.returns

    def walk(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node and what is below it, without the kernels defined there."""
        if isinstance(node, ast.FunctionDef) and self.module.on_device(node):
            return
        yield node
        for child in ast.iter_child_nodes(node):
            yield from self.walk(child)

    def bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self.holds(value):
                for target in targets:
                    self.pair(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if self.holds(value):
                self.name(target)
            case ast.NamedExpr(target=target, value=value) if self.holds(value):
                self.name(target)
            case ast.For(target=target, iter=source) | ast.comprehension(target=target, iter=source):
                if self.holds(source):
                    self.name(target)
            case ast.Return(value=ast.expr() as value) if self.holds(value):
                self.returns = True

    def pair(self, target: ast.expr, value: ast.expr) -> None:
        """`a, n = x, 3` names a tensor once."""
        match target, value:
            case ast.Tuple(elts=left), ast.Tuple(elts=right) if len(left) == len(right):
                for one, other in zip(left, right, strict=True):
                    if self.holds(other):
                        self.name(one)
            case _:
                self.name(target)

    def name(self, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self.tensors.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.tensors.add(f"self.{name}")
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.name(part)
            case ast.Starred(value=value):
                self.name(value)

    def holds(self, node: ast.expr | None) -> bool:  # noqa: PLR0911 - one case for each kind of expression
        """Whether an expression is a tensor, or a container with one."""
        match node:
            case ast.Name(id=name):
                return name in self.tensors
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return f"self.{name}" in self.tensors
            case ast.Attribute(value=value, attr=name):
                return self.holds(value) and name in VIEWS
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
                return self.holds(value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.BoolOp(values=parts):
                return any(map(self.holds, parts))
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
                return self.holds(one) or self.holds(other)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                return self.holds(part)
            case ast.Call():
                return self.call_holds(node)
        return False

    def call_holds(self, call: ast.Call) -> bool:
        if dotted(call.func, self.module.imports) in ALLOCATES:
            return True
        match call.func:
            case ast.Attribute(value=value, attr=name) if self.holds(value):
                return name in VIEWS
            case ast.Name(id="enumerate" | "list" | "tuple" | "zip"):
                return any(map(self.holds, call.args))
        if function := self.module.callee(call, self.owner):
            return self.module.enter(function, self.owner, self.passed(call, function))
        return False

    def passed(self, call: ast.Call, function: Function) -> frozenset[str]:
        """The parameters that receive tensors."""
        names = [name for name in _parameters(function) if name != "self"]
        given = {name for name, value in zip(names, call.args, strict=False) if self.holds(value)}
        given |= {word.arg for word in call.keywords if word.arg and self.holds(word.value)}
        if any(isinstance(value, ast.Starred) and self.holds(value) for value in call.args):
            given |= set(names)
        return frozenset(given)

    def check(self, node: ast.AST) -> Iterator[Refusal]:
        match node:
            case ast.BinOp(left=one, right=other) if not _joins(node):
                yield from self.computed([one, other], node)
            case ast.UnaryOp(operand=one) if not isinstance(node.op, ast.Not):
                yield from self.computed([one], node)
            case ast.Compare(left=one, ops=ops, comparators=others):
                if not all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in ops):
                    yield from self.computed([one, *others], node)
            case ast.AugAssign(target=one, value=other):
                yield from self.computed([one, other], node)
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()) if self.holds(value):
                yield Refusal(node.lineno, "writes to a tensor outside of a kernel")
            case ast.Attribute(value=value, attr=name) if self.holds(value):
                if name not in FACTS | ASKS | VIEWS or not isinstance(node.ctx, ast.Load):
                    yield Refusal(node.lineno, f"asks a tensor for .{name}: the kernel has to compute")
            case ast.Call(func=ast.Name(id=name), args=args) if any(map(self.holds, args)):
                if name in _BUILTINS - PASSES:
                    yield Refusal(node.lineno, f"gives a tensor to {name}: the kernel has to compute")
            case ast.Call():
                self.call_holds(node)  # looks into what is called

    def computed(self, operands: Iterable[ast.expr], node: ast.expr | ast.stmt) -> Iterator[Refusal]:
        if any(map(self.holds, operands)):
            yield Refusal(node.lineno, "computes with a tensor outside of a kernel")


_BUILTINS = frozenset(name for name in dir(builtins) if name[0].islower())


def _joins(node: ast.BinOp) -> bool:
    """`(x, y) + rest` joins containers."""
    return isinstance(node.op, ast.Add) and any(
        isinstance(side, ast.Tuple | ast.List) for side in (node.left, node.right)
    )


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    rest = [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
    return [argument.arg for argument in (*listed, *rest)]
