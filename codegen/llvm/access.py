"""Where a view lies in memory: an address, and the step in elements of each loop class.

A *loop class* is a loop of the generated nest; axes of several instructions that run together belong to one class.
Loops advance an access (`advanced`); a block of points around the current position is reached by constant offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codegen.llvm.text import Function, Value
from codegen.llvm.vector_code import memory_type
from tensor_types.dtypes import DType

Point = tuple[tuple[int, int], ...]
"""Offsets of one point of a block: (loop class, elements along it), sorted; classes at offset 0 are left out."""


def point(offsets: Mapping[int, int]) -> Point:
    """The point with these offsets."""
    return tuple(sorted((c, o) for c, o in offsets.items() if o))


@dataclass(frozen=True)
class Access:
    """A view's address at the current loop indices and its steps per loop class, in elements."""

    pointer: str
    dtype: DType
    steps: tuple[tuple[int, Value], ...]
    """(loop class, elements per index); classes that do not occur have step 0."""
    block_steps: tuple[tuple[int, Value], ...] | None = None
    """Steps of the points of a block where they differ from `steps`: tiles that keep one row per point."""

    def step(self, loop: int) -> Value:
        """Elements from one index of a loop class to the next."""
        return dict(self.steps).get(loop, 0)

    def lane_step(self, loop: int) -> Value:
        """Elements from one lane to the next when the lanes lie along a class."""
        return dict(self.steps if self.block_steps is None else self.block_steps).get(loop, 0)

    def advanced(self, fn: Function, loop: int, index: Value) -> Access:
        """The access after `index` steps along a class."""
        distance = fn.mul(index, self.step(loop))
        if distance == 0:
            return self
        return replace(self, pointer=fn.offset(self.pointer, distance, memory_type(self.dtype)))

    def address(self, fn: Function, at: Point, extra: Value = 0) -> str:
        """The address of a point, `extra` elements further on."""
        steps = dict(self.steps if self.block_steps is None else self.block_steps)
        total = extra
        for loop, offset in at:
            total = fn.add(total, fn.mul(steps.get(loop, 0), offset))
        return fn.offset(self.pointer, total, memory_type(self.dtype))
