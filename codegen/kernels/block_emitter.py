"""Instructions over one block: tiles for results, reused once nothing needs them, and what an operand may be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from codegen.kernels.region_task import KernelTask
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Value
from tensor_types.dims import Dim
from tensor_types.dtypes import DType


@dataclass(frozen=True)
class Words:
    """64-bit integers as their two 32-bit words, each i32, for an engine without 64-bit integers."""

    low: View | Imm
    high: View | Imm


Operand: TypeAlias = View | Imm | Words
"""A view whose axes are those of the block (broadcasting is an axis that does not occur in its index), or a number."""


def views(operand: Operand | None) -> set[View]:
    """The tiles and tensors that an operand reads."""
    parts = (operand.low, operand.high) if isinstance(operand, Words) else (operand,)
    return {part for part in parts if isinstance(part, View)}


def immediate(value: Value) -> Imm | None:
    """The immediate that a constant of one element stands for; None for every other value."""
    if value.recipe is None or value.recipe.size != 1:
        return None
    item = value.data.reshape(()).item()
    if isinstance(item, bool | int | float):
        return Imm(item)
    return Imm(int(value.data) if value.dtype.is_integer else float(value.data))


@dataclass
class _Pooled:
    view: View
    dtype: DType
    free: bool = False


class BlockEmitter:
    """Appends instructions over one block to a program.

    `shape` is the static shape of the tiles, `extents` what of it is valid (tails); results are tiles in `scope`. Tiles
    are reused once they have been released.
    """

    def __init__(
        self,
        builder: KernelTask,
        shape: Sequence[int],
        extents: Sequence[Dim],
        scope: str = "UB",
        prefix: str = "e",
    ) -> None:
        self.builder = builder
        self.shape = tuple(shape)
        self.extents = tuple(extents)
        self.scope = scope
        self._prefix = prefix
        self._pool: list[_Pooled] = []
        self._loops = 0
        self._made: list[View] = []
        """Results of the instructions of one operator, some of them released."""

    def tile(self, dtype: DType) -> View:
        """An unused tile of the block; it stays taken until `release`."""
        for pooled in self._pool:
            if pooled.free and pooled.dtype == dtype:
                pooled.free = False
                return pooled.view
        buffer = self.builder.tile(f"{self._prefix}{len(self._pool)}", dtype, self.shape, self.scope)
        view = buffer.view(*(axis(k) for k in range(len(self.shape))), shape=self.extents)
        self._pool.append(_Pooled(view, dtype))
        return view

    def release(self, operand: Operand) -> None:
        """Lets the tiles of this emitter in an operand be reused; others are left alone."""
        self.release_views(views(operand))

    def release_views(self, freed: Collection[View]) -> None:
        """The same of views."""
        for pooled in self._pool:
            if pooled.view in freed:
                pooled.free = True

    def release_since(self, start: int, result: Operand) -> None:
        """Releases what has been made since there were `start` results, except for what `result` is held in."""
        kept = views(result)
        for view in self._made[start:]:
            if view not in kept:
                self.release(view)

    @contextmanager
    def repeat(self, times: int) -> Iterator[None]:
        """A loop around the instructions inside the `with`; tiles made there are free behind it."""
        self._loops += 1
        start = len(self._made)
        with self.builder.loop(f"{self._prefix}loop{self._loops}", times):
            yield
        for view in self._made[start:]:
            self.release(view)

    def apply(self, op: str, dtype: DType, *operands: Operand | int | float | bool, **attrs: int | str) -> View | Words:
        """One instruction into a new tile of `dtype`."""
        result = self.tile(dtype)
        self._made.append(result)
        assert not any(isinstance(o, Words) for o in operands)
        self.builder.instr(op, result, *operands, **attrs)  # type: ignore[arg-type]
        return result
