"""Blocks of a prepared image: which pixels of the image a block of the result shows, and where padding is filled in.

Blocks are whole squares of `unit` pixels, as chroma has a number for each square of four; the last may end outside.
The first block of an axis fills the padding before the image as well, the last one that behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from codegen.kernels.region_task import KernelTask
from tensor_types.dims import Dim, ceildiv, dmin


@dataclass(frozen=True)
class Span:
    """A range of an axis of the result."""

    start: Dim
    size: Dim


@dataclass(frozen=True)
class Axis:
    """An axis of the result: `extent` pixels of the image between those of padding."""

    extent: Dim
    before: int
    behind: int
    unit: int

    @property
    def units(self) -> Dim:
        """How many squares cover the image."""
        return ceildiv(self.extent, self.unit)


@dataclass(frozen=True)
class Side:
    """One axis of a block: of the image the pixels from `image` on, `size` of them, in whole squares."""

    axis: Axis
    image: Dim
    size: Dim
    block: int
    """Squares of a block."""

    @property
    def inner(self) -> Span:
        """Where the pixels of the image stand."""
        extent = self.axis.extent
        valid = self.size if extent % self.axis.unit == 0 else dmin(self.size, extent - self.image)
        return Span(self.axis.before + self.image, valid)

    def parts(self, task: KernelTask) -> Iterator[tuple[AbstractContextManager[None], Span, bool]]:
        """What the block writes along the axis, each with the condition for it, and whether it is padding."""
        number = self.image if isinstance(self.image, int) else self.image // (self.axis.unit * self.block)
        last = ceildiv(self.axis.units, self.block) - 1
        yield nullcontext(), self.inner, False
        for size, start, at in (
            (self.axis.before, 0, 0), (self.axis.behind, self.axis.before + self.axis.extent, last)
        ):  # fmt: skip
            if size:
                alone = isinstance(number, int)
                yield nullcontext() if alone else task.when(number, "==", at), Span(start, size), True
