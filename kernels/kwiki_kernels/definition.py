"""What a task computes and on which sizes: Definition and Workload of FlashInfer-Trace.

Others may say more in these records than the judge knows: unknown keys are passed over, unless they
look like a known one misspelt.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kwiki_kernels.errors import TaskError
from kwiki_kernels.evaluation import Record
from kwiki_kernels.knobs import holds

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class Part(Record):
    """A record that may hold keys of others, too."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _spelt_right(cls, given: Any) -> Any:
        for key in given if isinstance(given, dict) else ():
            if key not in cls.model_fields:
                for known in difflib.get_close_matches(
                    str(key), cls.model_fields.keys() - given.keys(), 1, 0.8
                ):
                    raise ValueError(f"unknown key '{key}': is '{known}' meant?")
        return given


class ConstAxis(Part):
    """An axis with one value for all workloads."""

    type: Literal["const"]
    value: int = Field(ge=0)
    description: str | None = None


class VarAxis(Part):
    """An axis whose value each workload gives."""

    type: Literal["var"]
    description: str | None = None


class TensorSpec(Part):
    """Shape in axis names (None: a scalar) and dtype of an input or output."""

    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None
    optional: bool = False

    @field_validator("dtype")
    @classmethod
    def _known_dtype(cls, dtype: str) -> str:
        if dtype not in DTYPE_BYTES:
            raise ValueError(f"unknown dtype '{dtype}'; known: {', '.join(DTYPE_BYTES)}")
        return dtype


class Definition(Part):
    """What is computed: the Definition of FlashInfer-Trace."""

    name: str
    op_type: str
    axes: dict[str, Annotated[ConstAxis | VarAxis, Field(discriminator="type")]]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    constraints: tuple[str, ...] = ()
    reference: str | None = None
    tags: tuple[str, ...] = ()
    description: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Definition:
        if not self.outputs:
            raise ValueError("outputs: there is none, so every kernel would be right")
        if twice := self.inputs.keys() & self.outputs.keys():
            raise ValueError(f"'{min(twice)}' is both an input and an output")
        for kind, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name, spec in specs.items():
                for axis in spec.shape or ():
                    if axis not in self.axes:
                        raise ValueError(f"{kind}.{name}.shape: there is no axis '{axis}'")
        for name, spec in self.outputs.items():
            if spec.shape is None:
                raise ValueError(f"outputs.{name}.shape: the judge knows only tensors, this is a scalar")
        for rule in self.constraints:
            try:
                ast.parse(rule, mode="eval")
            except SyntaxError as error:
                raise ValueError(f"constraints: '{rule}' is no expression: {error.msg}") from error
        return self

    def axis_values(self, given: Mapping[str, int]) -> dict[str, int]:
        """All axis values of a workload: the constants and what `given` adds."""
        return {
            name: axis.value if isinstance(axis, ConstAxis) else given[name]
            for name, axis in self.axes.items()
        }

    def broken_rule(self, axes: Mapping[str, int]) -> str | None:
        """The first constraint that does not hold for all these axis values.

        A constraint may be any Python (`cu_seqlens[-1].item() == total`): only arithmetic is checked.
        """
        for rule in self.constraints:
            with contextlib.suppress(TaskError):
                if not holds(rule, axes):
                    return rule
        return None

    def unmakeable(self, workload: Workload) -> str:
        """Why no inputs can be made for a workload, as a sentence; empty where they can."""
        for name, spec in self.inputs.items():
            given = workload.inputs.get(name, {"type": "random"})
            kind = given.get("type") if isinstance(given, dict) else given
            if spec.shape is None:
                if not isinstance(workload.scalar(name), bool | int | float):
                    return f"workload {workload.uuid} gives no value for the scalar '{name}'"
            elif kind != "random" and name not in workload.captured:
                return f"input '{name}' is of type '{kind}'; a tensor is random or safetensors"
        return ""

    def bytes_moved(self, axes: Mapping[str, int]) -> int:
        """By shapes alone: each input tensor read once, each output written once."""
        return tensor_bytes(self.inputs, axes) + tensor_bytes(self.outputs, axes)


def tensor_bytes(specs: Mapping[str, TensorSpec], axes: Mapping[str, int]) -> int:
    """Bytes of all tensors among inputs or outputs at these axis values."""
    return sum(
        DTYPE_BYTES[spec.dtype] * math.prod(axes[axis] for axis in spec.shape)
        for spec in specs.values()
        if spec.shape is not None
    )


class Workload(BaseModel):
    """One set of axis values to run on. Extra keys of captured traces are kept but not used."""

    model_config = ConfigDict(extra="allow", frozen=True)

    uuid: str
    axes: dict[str, Annotated[int, Field(ge=0)]]
    inputs: dict[str, Any] = Field(default_factory=dict)
    held_out: bool = False
    """Drawn by the judge: checked, never timed."""

    def scalar(self, name: str) -> Any:
        """What a scalar input is given as: by type and value, plainly, or among `scalars`."""
        given = self.inputs.get(name, {})
        scalars = (self.model_extra or {}).get("scalars", {})
        return given.get("value", scalars.get(name)) if isinstance(given, dict) else given

    @property
    def captured(self) -> dict[str, dict[str, str]]:
        """Inputs that come from a file, to its `path` and the `tensor_key` within."""
        return {
            name: given
            for name, given in self.inputs.items()
            if isinstance(given, dict) and given.get("type") == "safetensors"
        }

    @model_validator(mode="after")
    def _captured_from_somewhere(self) -> Workload:
        for name, given in self.captured.items():
            for key in ("path", "tensor_key"):
                if not isinstance(given.get(key), str):
                    raise ValueError(f"inputs.{name} is of type 'safetensors' and needs a '{key}'")
        return self
