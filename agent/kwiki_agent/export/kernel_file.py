"""The kernel's text with what calls it: one module that needs torch and the kernel's language alone."""

from __future__ import annotations

import ast

from kwiki_kernels.definition import ConstAxis, Definition, TensorSpec
from kwiki_kernels.job import Candidate, Rule

from kwiki_agent.contract import AgentError
from kwiki_agent.export.literal import literal

DISPATCH = '''\
_STATIC_AXES = {static_axes}
_KNOBS = {knobs}
{rules}

def {name}({parameters}):
    """{summary}

    Args:
{arguments}

    Returns:
{returns}
    """
    axes = {{{axes}}}
{allocations}
    _built(axes, {choice})({parameters}, {outputs})
    return {outputs}

{chooser}
def _built(axes, knobs):
    key = (tuple(axes[name] for name in _STATIC_AXES), tuple(knobs.values()))
    if key not in _BUILT:
        _BUILT[key] = build({{name: axes[name] for name in _STATIC_AXES}}, dict(knobs))
    return _BUILT[key]


_BUILT: dict = {{}}
"""Compiled kernels: each takes some seconds when it is first asked for."""
'''

RULES = '''\
_RULES = {rules}
"""Knobs for inputs whose axes are all at most these; the first that fits wins, else `_KNOBS`."""
'''

CHOOSER = """
def _knobs(axes):
    for bounds, knobs in _RULES:
        if all(axes[name] <= bound for name, bound in bounds.items()):
            return knobs
    return _KNOBS

"""

RUN = '''\
def {name}({parameters}):
    """{summary}

    Args:
{arguments}

    Returns:
{returns}
    """
{body}
'''


def kernel_file(candidate: Candidate, definition: Definition, origin: str) -> str:
    """The module's text.

    Args:
        origin: one line that says where the kernel comes from.

    Raises:
        AgentError: an output's shape does not follow from the inputs' shapes.
    """
    tree = ast.parse(candidate.source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    fields = {
        "name": entry_name(definition),
        "parameters": ", ".join(definition.inputs),
        "summary": definition.description or f"{definition.name}, computed by the kernel above.",
        "arguments": "\n".join(f"        {name}: {_form(spec)}" for name, spec in definition.inputs.items()),
        "returns": "\n".join(f"        {name}: {_form(spec)}" for name, spec in definition.outputs.items()),
        "outputs": ", ".join(definition.outputs),
    }
    if "build" in functions:
        rules = tuple((rule.axes, rule.knobs) for rule in fewest_rules(candidate))
        entry = DISPATCH.format(
            **fields,
            static_axes=literal(_static_axes(tree, definition)),
            knobs=literal(candidate.knobs, before=len("_KNOBS = ")),
            rules=RULES.format(rules=literal(rules, before=len("_RULES = "))) if rules else "",
            choice="_knobs(axes)" if rules else "_KNOBS",
            chooser=CHOOSER if rules else "",
            axes=", ".join(f'"{name}": {value}' for name, value in _axes(definition).items()),
            allocations=_allocations(definition),
        )
    else:
        entry = RUN.format(**fields, body=_call_run(functions["run"], definition))
    for name in (fields["name"], "_knobs", "_built"):
        if name in functions:
            raise AgentError(
                f"the kernel has a function {name} of its own: rename it, the export needs the name"
            )
    return f"{candidate.source.rstrip()}\n\n\n# {origin}\n\nimport torch  # noqa: E402\n\n{entry}"


def entry_name(definition: Definition) -> str:
    """The name of the function that callers use, and of its module."""
    return "".join(c if c.isalnum() else "_" for c in definition.name.lower())


def fewest_rules(candidate: Candidate) -> tuple[Rule, ...]:
    """The rules without those that the next one, or the default, says as well."""
    kept: list[Rule] = []
    for rule in reversed(candidate.rules):
        following = kept[-1] if kept else None
        if following is None and rule.knobs == candidate.knobs:
            continue
        inside = following is not None and all(
            bound <= following.axes.get(name, bound) for name, bound in rule.axes.items()
        )
        if following is not None and inside and following.knobs == rule.knobs:
            continue
        kept.append(rule)
    return tuple(reversed(kept))


def _axes(definition: Definition) -> dict[str, str]:
    """Each axis as an expression over the inputs."""
    found: dict[str, str] = {}
    for name, axis in definition.axes.items():
        if isinstance(axis, ConstAxis):
            found[name] = str(axis.value)
            continue
        places = (
            f"{tensor}.shape[{spec.shape.index(name)}]"
            for tensor, spec in definition.inputs.items()
            if spec.shape is not None and name in spec.shape
        )
        place = next(places, None)
        if place is None:
            raise AgentError(
                f"axis '{name}' of {definition.name} is in no input's shape: it cannot be exported"
            )
        found[name] = place
    return found


def _static_axes(tree: ast.Module, definition: Definition) -> tuple[str, ...]:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="STATIC_AXES")], value=value):
                return tuple(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="STATIC_AXES"), value=ast.expr() as value):
                return tuple(ast.literal_eval(value))
    return tuple(definition.axes)


def _allocations(definition: Definition) -> str:
    tensor = next(name for name, spec in definition.inputs.items() if spec.shape is not None)
    lines = []
    for name, spec in definition.outputs.items():
        shape = ", ".join(f'axes["{axis}"]' for axis in spec.shape or ())
        lines.append(f"    {name} = torch.empty({shape}, dtype=torch.{spec.dtype}, device={tensor}.device)")
    return "\n".join(lines)


def _call_run(run: ast.FunctionDef, definition: Definition) -> str:
    parameters = ", ".join(definition.inputs)
    if len(run.args.posonlyargs) + len(run.args.args) == len(definition.inputs):
        return f"    return run({parameters})"
    axes = ", ".join(f'"{name}": {value}' for name, value in _axes(definition).items())
    outputs = ", ".join(definition.outputs)
    return (
        f"    axes = {{{axes}}}\n{_allocations(definition)}\n"
        f"    run({parameters}, {outputs})\n    return {outputs}"
    )


def _form(spec: TensorSpec) -> str:
    form = f"{spec.dtype} scalar" if spec.shape is None else f"{spec.dtype} [{', '.join(spec.shape)}]"
    return form + (f", {spec.description}" if getattr(spec, "description", None) else "")
