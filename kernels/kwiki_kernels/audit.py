"""What a candidate's text may say, and whose kernels may run for it.

A kernel is written in CuTe-DSL or Triton. Around it stands host code that allocates, packs
arguments and launches; it computes nothing, opens nothing and replaces nothing. So the audit is a
list of what is allowed, read from the syntax tree without running anything. It is one layer and not
a sandbox: what it cannot see (a result remembered by address, a shape learnt by heart) the checks
on values find, and `docs/security.md` says what neither does.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from kwiki_kernels.host_code import Refusal, computations
from kwiki_kernels.names import dotted, imported_names

LANGUAGES = {"CuTe-DSL": {"cutlass", "cuda"}, "Triton": {"triton"}}
ANY_NAME_OF = {
    "__future__", "abc", "collections", "collections.abc", "dataclasses", "enum", "itertools", "math",
    "typing",
}  # fmt: skip
"""Modules of which every public name may be used that is theirs; what they import is not."""

DTYPES = {
    "bfloat16", "bool", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int16", "int32",
    "int64", "int8", "uint8",
}  # fmt: skip
ONLY = {
    "torch": {f"torch.{name}" for name in DTYPES}
    | {
        "torch.Size", "torch.Tensor", "torch.device", "torch.dtype",
        "torch.empty", "torch.empty_like", "torch.empty_strided", "torch.zeros", "torch.zeros_like",
        "torch.inference_mode", "torch.no_grad",
        "torch.cuda.current_device", "torch.cuda.current_stream", "torch.cuda.device",
        "torch.cuda.get_device_capability", "torch.cuda.get_device_properties",
    },
    "ctypes": {
        f"ctypes.{name}"
        for name in (
            "addressof", "byref", "sizeof", "c_bool", "c_double", "c_float", "c_int", "c_int32", "c_int64",
            "c_uint32", "c_uint64", "c_void_p",
        )
    },
    "cuda": {"cuda.bindings.driver.CUstream", "cuda.bindings.driver.CUdeviceptr"},
    "functools": {f"functools.{name}" for name in ("cache", "cached_property", "lru_cache", "partial")},
}  # fmt: skip
"""Modules of which only these names may be used. ctypes packs launch arguments, and no more than that."""

NEVER = {
    "cutlass.base_dsl", "cutlass.cuda", "cutlass.cute.export", "cutlass.cute.runtime.load_module",
    "cutlass.cute.testing", "cutlass.torch", "cutlass.utils.hardware_info.driver",
    "dataclasses.make_dataclass", "typing.ForwardRef", "typing.get_type_hints",
    "triton.backends", "triton.compiler", "triton.knobs", "triton.runtime", "triton.testing",
}  # fmt: skip
"""What reaches beyond writing a kernel, or evaluates text."""

BUILTINS = {
    "__builtins__", "__import__", "__loader__", "__spec__", "breakpoint", "compile", "delattr", "eval",
    "exec", "globals", "input", "locals", "memoryview", "open", "setattr", "vars",
}  # fmt: skip
ATTRIBUTES = {
    "builtins", "ctypes", "gc", "importlib", "inspect", "numpy", "os", "pathlib", "subprocess", "sys",
    "logging", "np", "operator", "shutil", "signal", "socket", "tempfile", "threading", "torch", "types",
    "warnings", "Path", "argparse", "atexit", "contextlib", "contextvars", "cuda_driver", "cuda_runtime",
    "cudart", "hashlib", "io", "nvrtc", "random", "re", "time", "uuid", "weakref",
    "zlib",  # modules, and a class, that another module lets through
    "ag_frame", "cr_frame", "f_back", "f_globals", "f_locals", "gi_frame", "tb_frame",
    "contents", "elapsed_time", "from_address", "from_buffer", "in_dll", "mro", "synchronize",
    "set_name_prefix",  # by its name on the GPU a kernel is known as the candidate's own
}  # fmt: skip
DUNDERS = {
    "__call__", "__cubin__", "__eq__", "__getitem__", "__hash__", "__init__", "__iter__", "__len__",
    "__name__", "__post_init__", "__repr__",
    "__c_pointers__", "__extract_mlir_values__", "__get_mlir_types__", "__new_from_mlir_values__",
}  # fmt: skip
"""The only names with two underscores around them that a kernel defines or asks for."""

CODING = re.compile(r"^[ \t\f]*#.*?coding[:=]")
"""Under another encoding Python would read another text than the one audited."""

OUR_OWN_LAUNCHES = ("FillFunctor",)
"""torch's fill kernel: workspaces are zeroed with it."""


def audit_source(text: str) -> Refusal | None:
    """The first line of a candidate that breaks a rule; None where it breaks none.

    A text that is no Python is left to the build, whose message says more.
    """
    if any(map(CODING.match, _first_two_lines(text))):
        return Refusal(1, "declares an encoding: a kernel's text is UTF-8")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        return Refusal(1, "is nested too deeply to be read")
    try:
        refusals = [*_imports(tree), *_uses(tree), *_constructs(tree), *computations(tree)]
    except RecursionError:
        return Refusal(1, "is nested too deeply to be read")
    return min(refusals, key=lambda refusal: refusal.line, default=None) or _language(tree)


@dataclass(frozen=True)
class OwnKernels:
    """The kernels that a candidate's text defines, as a graph or the profiler will name them."""

    names: frozenset[str]

    @classmethod
    def of(cls, text: str) -> OwnKernels:
        """Read from the decorators; empty for a text that is no Python."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return cls(frozenset())
        names = imported_names(tree)
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
                by = {dotted(decorator, names) for decorator in decorators}
                if "triton.jit" in by:
                    found.add(node.name)
                if by & {"cutlass.cute.kernel", "cutlass.kernel"}:
                    found.add(f"kernel_cutlass_{node.name}_")  # the DSL adds the types
        return cls(frozenset(found))

    def foreign(self, seen: Iterable[str]) -> list[str]:
        """Those of the kernels `seen` on the GPU that the candidate did not write, in order."""
        return [name for name in dict.fromkeys(seen) if not self._owns(name)]

    def _owns(self, name: str) -> bool:
        if any(mark in name for mark in OUR_OWN_LAUNCHES):
            return True
        return any(name.startswith(own) if own.endswith("_") else name == own for own in self.names)


def _imports(tree: ast.Module) -> Iterator[Refusal]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _module_allowed(alias.name):
                    yield Refusal(node.lineno, f"imports {alias.name}")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level or not _module_allowed(module):
                yield Refusal(node.lineno, f"imports {'.' * node.level}{module}")
            for alias in node.names:
                if alias.name == "*":
                    yield Refusal(node.lineno, f"imports all of {module}: name what you need")
                elif not _name_allowed(f"{module}.{alias.name}") and not _leads_on(f"{module}.{alias.name}"):
                    yield Refusal(node.lineno, f"imports {module}.{alias.name}")


def _uses(tree: ast.Module) -> Iterator[Refusal]:
    """Names that were imported, and what they are asked for."""
    names = imported_names(tree)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            path = dotted(node, names)
            if path is not None and not isinstance(node.ctx, ast.Load):
                yield Refusal(node.lineno, f"replaces {path}")
            elif path is not None and not _name_allowed(path):
                yield Refusal(node.lineno, f"uses {path}")
        if isinstance(node, ast.ClassDef):
            for base in (dotted(base, names) for base in node.bases):
                if base is not None and base.startswith(("torch.", "ctypes.")):
                    yield Refusal(node.lineno, f"derives a class from {base}")


def _constructs(tree: ast.Module) -> Iterator[Refusal]:
    """What no kernel needs, whatever it is used on."""
    asking = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and _asks_plainly(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in BUILTINS or _hidden(name):
                yield Refusal(node.lineno, f"uses {name}")
            case ast.Name(id="getattr") if id(node) not in asking:
                yield Refusal(node.lineno, "uses getattr with a name that cannot be read here")
            case ast.Attribute(attr=name) if _out_of_reach(name):
                yield Refusal(node.lineno, f"reaches for .{name}")
            case ast.MatchClass(patterns=[_, *_]):
                yield Refusal(node.lineno, "takes an object apart by position")
            case ast.MatchClass(kwd_attrs=names):
                yield from (
                    Refusal(node.lineno, f"reaches for .{name}") for name in names if _out_of_reach(name)
                )
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _hidden(name):
                yield Refusal(node.lineno, f"defines {name}")
            case ast.ExceptHandler():
                what = "catches an exception: a failure must be seen, and there is nothing to fall back on"
                yield Refusal(node.lineno, what)


def _language(tree: ast.Module) -> Refusal | None:
    roots = {path.split(".")[0] for path in imported_names(tree).values()}
    if any(roots & modules for modules in LANGUAGES.values()):
        return None
    return Refusal(1, f"is written in none of the languages judged here: {', '.join(LANGUAGES)}")


def _module_allowed(module: str) -> bool:
    return module in ANY_NAME_OF or _leads_on(module) or _in_a_language(module)


def _name_allowed(path: str) -> bool:
    root, _, rest = path.partition(".")
    if root in ONLY:
        parent, _, last = path.rpartition(".")
        return path in ONLY[root] or (last == "itemsize" and parent in ONLY[root])
    if root in ANY_NAME_OF:
        return bool(rest) and path not in NEVER and _is_its_own(path)
    return _in_a_language(path)


def _is_its_own(path: str) -> bool:
    """Whether a module of the standard library means this name for others: `enum.sys` it does not."""
    if path in ANY_NAME_OF:
        return True
    module, _, name = path.rpartition(".")
    if module not in ANY_NAME_OF:
        return _is_its_own(module)  # an attribute of a name, such as `Enum.value`
    found = importlib.import_module(module)
    public = getattr(found, "__all__", None) or [name for name in dir(found) if not name.startswith("_")]
    return name in public and not isinstance(getattr(found, name, None), ModuleType)


def _leads_on(path: str) -> bool:
    """Whether names that may be used lie below this one."""
    return any(name.startswith(f"{path}.") for name in ONLY.get(path.split(".", maxsplit=1)[0], ()))


def _in_a_language(path: str) -> bool:
    if any(path == part or path.startswith(f"{part}.") for part in NEVER):
        return False
    root, *parts = path.split(".")
    reached = any(part in ATTRIBUTES or (part[0] == "_" and part != "_mlir") for part in parts)
    return root in {"cutlass", "triton"} and not reached


def _first_two_lines(text: str) -> list[str]:
    """Where Python looks for an encoding. It ends lines at fewer characters than `str.splitlines`."""
    return re.split("[\r\n]", "\n".join(text.split("\n")[:2]))


def _asks_plainly(call: ast.Call) -> bool:
    """Whether this is `getattr(x, "name")`, of a name within reach."""
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[first, ast.Constant(value=str(name)), *_]):
            return not isinstance(first, ast.Starred) and not _out_of_reach(name)
    return False


def _out_of_reach(name: str) -> bool:
    return name in ATTRIBUTES or _hidden(name)


def _hidden(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS
