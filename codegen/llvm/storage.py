"""Where parameters and tiles lie: pointers, offsets in the scratch memory, and accesses to windows of them."""

from __future__ import annotations

from math import prod

from codegen.llvm.access import Access
from codegen.llvm.dims_ssa import DimValues
from codegen.llvm.liveness import Layout
from codegen.llvm.text import Function
from codegen.llvm.vector_code import memory_type
from codegen.llvm.windows import Window
from codegen.tile.ir import Param, Program, Tile, View
from codegen.tile.ir import element_strides as view_strides
from tensor_types.dims import Dim
from tensor_types.dtypes import DType

ALIGNMENT = 64


class Storage:
    """Addresses of a program's bases inside one generated function."""

    def __init__(self, fn: Function, dims: DimValues, program: Program, pointers: dict[str, str], scratch: str) -> None:
        self.fn = fn
        self.dims = dims
        self.program = program
        self.scratch_bytes = 0
        self._pointers = dict(pointers)
        self._scratch = scratch
        self._dtypes: dict[str, DType] = {p.name: p.dtype for p in program.params}
        self._dtypes.update({t.name: t.dtype for t in program.tiles})
        self._strides = {p.name: p.element_strides() for p in program.params}
        self._strides.update({t.name: _dense(t.shape) for t in program.tiles})
        self._shapes: dict[str, tuple[int, ...]] = {t.name: t.shape for t in program.tiles}
        self._params = {p.name for p in program.params}
        self._offsets: dict[object, int] = {}
        self.resident: set[str] = set()
        """Tiles that have memory."""
        self.rows: dict[str, Layout] = {}
        """Tiles that have memory for a block of one loop nest only."""

    def dtype(self, base: str) -> DType:
        return self._dtypes[base]

    def in_memory(self, base: str) -> bool:
        """True if results written to the base must reach memory."""
        return base in self._params or base in self.resident

    def allocate(self, key: object, size: int) -> str:
        """The address of `size` bytes of scratch that belong to `key`."""
        if key not in self._offsets:
            self._offsets[key] = self.scratch_bytes
            self.scratch_bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return self.fn.offset(self._scratch, self._offsets[key], "i8")

    def allocations(self) -> list[int]:
        """Offsets in scratch of what was allocated."""
        return list(self._offsets.values())

    def base_pointer(self, base: str) -> str:
        """The address of a base's first element."""
        if base in self._params:
            return self._pointers[base]
        return self.allocate(base, prod(self._shapes[base]) * self._dtypes[base].bytes)

    def static_steps(self, key: Window) -> dict[int, Dim]:
        """Elements per index of each loop class."""
        return key.steps(self._strides[key.base])[1]

    def extent_of(self, base: str, axis: int) -> Dim:
        """The extent of an axis of a base."""
        if base in self._params:
            param = self.program.param(base)
            assert param is not None
            return param.shape[axis]
        return self._shapes[base][axis]

    def access(self, key: Window) -> Access:
        """The access to a window over loop classes, at index 0 of each."""
        base = key.base
        if not self.in_memory(base):
            return Access("poison", self._dtypes[base], ())
        offset, steps = key.steps(self._strides[base])
        pointer = self.fn.offset(self.base_pointer(base), self.dims.value(offset), memory_type(self._dtypes[base]))
        return Access(pointer, self._dtypes[base], tuple((c, self.dims.value(s)) for c, s in sorted(steps.items())))

    def declared(self, base: str) -> Param | Tile:
        """The parameter or tile of that name."""
        found = self.program.param(base) or self.program.tile(base)
        assert found is not None
        return found

    def view_access(self, view: View) -> Access:
        """The access to a view; loop class k is its axis k."""
        base = self.declared(view.base)
        offset, steps = view_strides(view, base)
        pointer = self.fn.offset(self.base_pointer(base.name), self.dims.value(offset), memory_type(base.dtype))
        return Access(pointer, base.dtype, tuple((k, self.dims.value(s)) for k, s in enumerate(steps)))

    def row_access(self, key: Window, block: dict[int, int], lane_loop: int | None) -> Access:
        """The access to a tile that has memory for one block of outer indices: `block` elements of each class.

        The kept axes stay row-major; `lane_loop`, the outer class in the lanes, lies innermost and is contiguous.
        """
        base = key.base
        layout = self.rows[base]
        shape = self._shapes[base]
        sizes = [block.get(f, 1) if f is not None else n for f, n in zip(layout.follows, shape, strict=True)]
        order = sorted(
            range(len(shape)), key=lambda k: (layout.follows[k] is not None and layout.follows[k] == lane_loop, k)
        )
        strides = [0] * len(shape)
        total = 1
        for k in reversed(order):
            strides[k] = total
            total *= sizes[k]
        pointer = self.allocate(base, total * self._dtypes[base].bytes)
        steps: dict[int, int] = {}
        blocks: dict[int, int] = {}
        offset: Dim = 0
        for k, ((start, axis_steps), follow) in enumerate(zip(key.axes, layout.follows, strict=True)):
            if follow is not None:
                blocks[follow] = strides[k]
                continue
            offset = offset + start * strides[k]
            for loop, step in axis_steps:
                assert isinstance(step, int)
                steps[loop] = steps.get(loop, 0) + step * strides[k]
        pointer = self.fn.offset(pointer, self.dims.value(offset), memory_type(self._dtypes[base]))
        moving = tuple(sorted(steps.items()))
        return Access(pointer, self._dtypes[base], moving, tuple(sorted({**steps, **blocks}.items())))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
