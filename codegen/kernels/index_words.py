"""Tensors of i64 as the engines of a target see them: whole elements on a host, pairs of 32-bit words on a chip.

The vector engine of a chip has no 64-bit integers. It takes the low words of indices, and results, which count elements
and are never negative, get zeros as their high words.
"""

from __future__ import annotations

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.region_task import KernelTask
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Value
from tensor_types.dims import Dim
from tensor_types.dtypes import I32, I64, DType


class IndexWords:
    """Reads and writes i64 values of one task; `block` is the static shape of what one `store` writes at most."""

    def __init__(self, task: KernelTask, paths: MemoryPaths, block: tuple[int, ...]) -> None:
        self._task, self._explicit = task, paths.explicit
        self.dtype: DType = I32 if paths.explicit else I64
        """What tiles hold indices in."""
        self._zeros: Buffer | None = None
        if paths.explicit:
            self._zeros = paths.tile(I32, block)
            task.expands(self._zeros, 0)

    def operand(self, value: Value, role: str, shape: tuple[Dim, ...]) -> Buffer:
        """The parameter of an i64 value."""
        if self._explicit:
            return self._task.operand(value, role, (*shape, 2), dtype=I32)
        return self._task.operand(value, role, shape)

    def view(self, buffer: Buffer, index: tuple[Dim, ...], shape: tuple[Dim, ...]) -> View:
        """The elements at `index`; of those of a chip the low words."""
        return buffer.view(*index, *((0,) if self._explicit else ()), shape=shape)

    def store(self, buffer: Buffer, index: tuple[Dim, ...], source: View) -> None:
        """Writes a tile of `dtype` to the elements at `index`."""
        self._task.store(self.view(buffer, index, source.shape), source)
        if self._zeros is not None:
            zeros = self._zeros.view(*map(axis, range(len(source.shape))), shape=source.shape)
            self._task.store(buffer.view(*index, 1, shape=source.shape), zeros)
