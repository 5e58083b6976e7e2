"""Gears of a package: the combinations of sizes that it was made for, as its header tells them
(docs/architecture.md, section 7)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acl_runtime.device.codes import Code, DeviceError
from acl_runtime.device.dataset import Dataset
from acl_runtime.device.memory import Memory
from acl_runtime.gear_sizes import BATCH, DIMS, IMAGE, gear_dims
from acl_runtime.plan_format import PlanValue
from tensor_types.dims import Dim, evaluate, names

__all__ = ["BATCH", "DIMS", "IMAGE", "Gears", "gears_of"]


@dataclass(frozen=True)
class Gears:
    """kind: batch, image or dims. name: of the hidden input. dims: values of the plan's dims, by combination.

    input_dims: the shapes of the inputs in dims. current: the combination chosen last, by number.
    """

    kind: str
    name: str
    combinations: tuple[tuple[int, ...], ...]
    dims: tuple[Mapping[str, int], ...]
    input_dims: tuple[tuple[Dim, ...], ...]
    current: list[int] = field(default_factory=list, compare=False)

    @property
    def values(self) -> int:
        """Sizes of a combination."""
        return len(self.combinations[0])

    @property
    def largest(self) -> int:
        """The combination that runs without a choice: the last of those with the most elements."""
        return max(range(len(self.combinations)), key=lambda n: (math.prod(self.combinations[n]), n))

    def shape(self, dims: Sequence[Dim], number: int) -> tuple[int, ...]:
        """A shape under a combination; -1 for what only a run decides."""
        known = self.dims[number]
        return tuple(evaluate(d, known) if names(d) <= known.keys() else -1 for d in dims)

    def input_shapes(self, number: int) -> list[tuple[int, ...]]:
        return [self.shape(dims, number) for dims in self.input_dims]

    def number(self, kind: str, sizes: Sequence[int]) -> int:
        """The combination of these sizes. INVALID_PARAM for a size of 0, DYNAMIC_BATCH_SIZE_INVALID for no gear."""
        if not all(sizes):
            raise DeviceError(Code.INVALID_PARAM, f"a size of {list(sizes)} is 0")
        if kind != self.kind or tuple(sizes) not in self.combinations:
            shown = [list(c) for c in self.combinations]
            raise DeviceError(
                Code.DYNAMIC_BATCH_SIZE_INVALID, f"{list(sizes)} is none of the {self.kind} gears {shown}"
            )
        return self.combinations.index(tuple(sizes))

    def number_of_shapes(self, flat: Sequence[int]) -> int:
        """The combination whose input shapes, one behind the other, are these numbers.

        DYNAMIC_INPUT_LENGTH_INVALID if the count or a fixed size differs, DYNAMIC_BATCH_SIZE_INVALID for no gear.
        """
        dims = [d for shape in self.input_dims for d in shape]
        if len(flat) != len(dims) or any(isinstance(d, int) and d != n for d, n in zip(dims, flat, strict=True)):
            raise DeviceError(
                Code.DYNAMIC_INPUT_LENGTH_INVALID,
                f"{list(flat)} does not fit the inputs' shapes {list(map(str, dims))}",
            )
        for number in range(len(self.combinations)):
            if [n for shape in self.input_shapes(number) for n in shape] == list(flat):
                return number
        raise DeviceError(Code.DYNAMIC_BATCH_SIZE_INVALID, f"{list(flat)} is no gear of the model")

    def choose(self, inputs: Dataset, index: int, number: int, memory: Memory) -> None:
        """Writes a combination into the hidden input of a dataset, whose executions run with it from then on.

        INVALID_PARAM if `index` is not the hidden input's, DYNAMIC_INPUT_ADDR_INVALID if its buffer has no memory,
        DYNAMIC_INPUT_LENGTH_INVALID if it is too short; nothing is changed then.
        """
        if index != len(self.input_dims):
            raise DeviceError(Code.INVALID_PARAM, f"input {index} is not {self.name}, which is {len(self.input_dims)}")
        if index >= len(inputs.buffers):
            raise DeviceError(Code.INVALID_PARAM, f"the dataset has {len(inputs.buffers)} buffers, none of {self.name}")
        buffer = inputs.buffers[index]
        if buffer.size < 4 * self.values:
            raise DeviceError(
                Code.DYNAMIC_INPUT_LENGTH_INVALID, f"{self.name} needs {4 * self.values} bytes, it has {buffer.size}"
            )
        kind = np.uint64 if buffer.size == 8 * self.values else np.uint32
        numbers = np.array(self.combinations[number], kind)
        try:
            memory.copy(buffer.address, numbers.ctypes.data, numbers.nbytes)
        except DeviceError as error:
            raise DeviceError(Code.DYNAMIC_INPUT_ADDR_INVALID, error.message) from None
        buffer.gear = self.combinations[number]
        self.current[:] = [number]

    def chosen(self, inputs: Dataset) -> int:
        """What the dataset was told to run with; the largest combination if nothing was."""
        gear = inputs.buffers[len(self.input_dims)].gear
        return self.largest if gear is None else self.number(self.kind, gear)


def gears_of(header: Mapping[str, Any], inputs: Sequence[PlanValue]) -> Gears | None:
    """The gears of a package, None if it has none. PackageError if they do not fit the plan's inputs."""
    dims = gear_dims(header, inputs)
    if not dims:
        return None
    found = header["gears"]
    combinations = tuple(tuple(int(n) for n in c) for c in found["combinations"])
    shapes = tuple(tuple(v.shape or ()) for v in inputs)
    return Gears(str(found["kind"]), str(found.get("input")), combinations, dims, shapes)
