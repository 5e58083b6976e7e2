"""What AscendCL tells of a model: inputs and outputs, gears, images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from acl_runtime.device.aipp import ImageInput, ImageStage, images_of
from acl_runtime.device.gears import Gears, gears_of
from acl_runtime.model import LoadedModel
from tensor_types.dims import Dim, evaluate, names
from tensor_types.dtypes import I32, DType

FORMAT_NCHW, FORMAT_ND = 0, 2
_UNKNOWN_RANK = -2


@dataclass(frozen=True)
class TensorDescription:
    """An input or output. dims: -1 for a dynamic axis, one -2 if even the rank is unknown.

    ranges: smallest and largest size of each axis (-1: no limit). nbytes: of the largest shape, 0 if there is none.
    """

    name: str
    dtype: DType
    dims: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]
    nbytes: int
    image: ImageInput | None = None

    @property
    def format(self) -> int:
        """aclFormat."""
        return FORMAT_NCHW if len(self.dims) == 4 else FORMAT_ND

    @cached_property
    def is_dynamic(self) -> bool:
        return any(d < 0 for d in self.dims)


@dataclass(frozen=True)
class ModelDescription:
    """Inputs and outputs in the model's order; with gears one hidden input more, the last, and outputs as large as the
    largest gear makes them (`output_dims`: in dims). `stages`: inputs whose images a program describes at run time."""

    model_id: int
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    gears: Gears | None = None
    output_dims: tuple[tuple[Dim, ...] | None, ...] = ()
    stages: tuple[ImageStage, ...] = ()

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether a caller says shapes, in tensor descriptions."""
        return self.gears is None and any(t.is_dynamic for t in self.inputs)

    @property
    def tensors(self) -> tuple[TensorDescription, ...]:
        """The inputs without the hidden one."""
        return self.inputs if self.gears is None else self.inputs[:-1]

    @property
    def fed(self) -> tuple[TensorDescription, ...]:
        """The inputs of the model itself: without sizes and parameters of images, which stand behind them."""
        return self.tensors[: len(self.tensors) - len(self.stages)]

    def current_output_dims(self, index: int) -> tuple[int, ...]:
        """The dims under the gear chosen last, else under the largest; the model's own without gears."""
        dims = self.output_dims[index] if self.gears is not None else None
        if self.gears is None or dims is None:
            return self.outputs[index].dims
        return self.gears.shape(dims, self.gears.current[0] if self.gears.current else self.gears.largest)


def describe(model_id: int, loaded: LoadedModel) -> ModelDescription:
    """The description of a loaded model. PackageError if the header does not fit the plan."""
    plan, header = loaded.plan, loaded.package.header
    gears = gears_of(header, plan.inputs)
    images, stages = images_of(header, [v.name for v in plan.inputs])
    inputs = [replace(_describe(v.name, v.dtype, v.shape, plan.dims), image=images.get(v.name)) for v in plan.inputs]
    outputs = [_describe(v.name, v.dtype, v.shape, plan.dims) for v in plan.outputs]
    if gears is not None:
        every = range(len(gears.combinations))
        inputs = [
            replace(t, nbytes=max(math.prod(gears.shape(v.shape or (), n)) for n in every) * t.dtype.bytes)
            for t, v in zip(inputs, plan.inputs, strict=True)
        ]
        inputs.append(
            TensorDescription(gears.name, I32, (gears.values,), ((gears.values,) * 2,), gears.values * I32.bytes)
        )
        for number, value in enumerate(plan.outputs):
            shapes = [gears.shape(value.shape, n) for n in every] if value.shape is not None else []
            if shapes and all(d >= 0 for shape in shapes for d in shape):
                nbytes = max(map(math.prod, shapes)) * value.dtype.bytes
                outputs[number] = replace(outputs[number], dims=shapes[gears.largest], nbytes=nbytes)
    shapes_of_outputs = tuple(v.shape for v in plan.outputs)
    return ModelDescription(model_id, tuple(inputs), tuple(outputs), gears, shapes_of_outputs, stages)


def _describe(
    name: str, dtype: DType, shape: tuple[Dim, ...] | None, limits: Mapping[str, tuple[int, int | None]]
) -> TensorDescription:
    if shape is None:
        return TensorDescription(name, dtype, (_UNKNOWN_RANK,), (), 0)
    ranges = tuple((_at(d, limits, 0, 1), _at(d, limits, 1, -1)) for d in shape)
    largest = [high for _, high in ranges]
    nbytes = 0 if -1 in largest or dtype.kind == "handle" else math.prod(largest) * dtype.bytes
    return TensorDescription(name, dtype, tuple(d if isinstance(d, int) else -1 for d in shape), ranges, nbytes)


def _at(size: Dim, limits: Mapping[str, tuple[int, int | None]], end: int, unknown: int) -> int:
    """A size with every dim at its lower (0) or upper (1) limit; dims only ever add to the sizes of real models."""
    env = {name: limits[name][end] for name in names(size) if name in limits}
    if any(value is None for value in env.values()) or len(env) < len(names(size)):
        return unknown
    return evaluate(size, env)  # type: ignore[arg-type]
