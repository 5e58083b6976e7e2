"""TLOAD with padding: for each row the range inside the source is found once; it is copied, the rest is filled."""

from __future__ import annotations

from contextlib import ExitStack

from codegen.llvm.access import Access
from codegen.llvm.conversions import convert
from codegen.llvm.loops import Chunk, over_vectors
from codegen.llvm.storage import Storage
from codegen.llvm.text import Value
from codegen.llvm.vector_code import Vec, VectorCode
from codegen.llvm.vector_memory import load_vector, store_vector
from codegen.tile.ir import Instr, View, linear_index


def emit_padded_load(code: VectorCode, storage: Storage, instr: Instr) -> None:
    """Emits dst = src where the source's index is inside its base, `pad` elsewhere."""
    source = instr.srcs[0]
    assert isinstance(source, View)
    _PaddedLoad(code, storage, instr, source).emit()


class _PaddedLoad:
    def __init__(self, code: VectorCode, storage: Storage, instr: Instr, source: View) -> None:
        self.code, self.storage, self.source = code, storage, source
        self.fn, self.dims = code.fn, storage.dims
        rank = len(instr.dst.shape)
        self.shape = [self.dims.value(s) for s in instr.dst.shape]
        self.dst = storage.view_access(instr.dst)
        self.src = storage.view_access(source)
        pad = instr.attr("pad", 0)
        assert isinstance(pad, int | float)
        self.pad = pad
        unit = [k for k in range(rank) if self.dst.step(k) == 1]
        self.row_axis = unit[-1] if unit else rank - 1
        # Dims are computed here, where they dominate every loop.
        self.axes: list[tuple[Value, dict[int, Value]]] = []
        for index in source.index:
            start, steps = linear_index(index, rank)
            moving = {k: self.dims.value(s) for k, s in enumerate(steps) if s != 0}
            self.axes.append((self.dims.value(start), moving))
        self.sizes = [self.dims.value(storage.extent_of(source.base, i)) for i in range(len(source.index))]

    def emit(self) -> None:
        fn = self.fn
        if not self.shape:
            self._row(self.dst, self.src, {}, [])
            return
        outer = [k for k in range(len(self.shape)) if k != self.row_axis]
        dst, src = self.dst, self.src
        indices: dict[int, Value] = {}
        inside: list[str] = []
        pending = [i for i in range(len(self.axes)) if not self._in_row(i)]
        with ExitStack() as stack:
            for k in [None, *outer]:
                if k is not None:
                    indices[k] = stack.enter_context(fn.loop(self.shape[k]))
                    dst, src = dst.advanced(fn, k, indices[k]), src.advanced(fn, k, indices[k])
                # An index that the row does not change is tested as soon as its loops are open.
                for i in [i for i in pending if self._needs(i) <= set(indices)]:
                    pending.remove(i)
                    inside += self._tests(i, indices)
            self._row(dst, src, indices, inside)

    def _needs(self, i: int) -> set[int]:
        return set(self.axes[i][1])

    def _in_row(self, i: int) -> bool:
        return bool(self.shape) and self.row_axis in self.axes[i][1]

    def _position(self, i: int, indices: dict[int, Value]) -> Value:
        """The index into base axis i at the start of the row."""
        at = self.axes[i][0]
        for k, step in self.axes[i][1].items():
            if k in indices:
                at = self.fn.add(at, self.fn.mul(indices[k], step))
        return at

    def _tests(self, i: int, indices: dict[int, Value]) -> list[str]:
        at, size = self._position(i, indices), self.sizes[i]
        if isinstance(at, int) and isinstance(size, int):
            return [] if 0 <= at < size else ["false"]
        # Unsigned: a negative index counts as a large one.
        return [self.fn.emit(f"icmp ult i64 {at}, {size}")]

    def _range(self, i: int, indices: dict[int, Value]) -> tuple[Value, Value]:
        """The part [low, high) of the row in which base axis i is inside."""
        fn = self.fn
        at, size = self._position(i, indices), self.sizes[i]
        step = self.axes[i][1][self.row_axis]
        if not isinstance(step, int):
            raise ValueError(f"padded load of {self.source.base}: the step along the innermost axis must be static")
        if step > 0:
            return self._ceildiv(fn.sub(0, at), step), self._ceildiv(fn.sub(size, at), step)
        return fn.add(fn.floordiv(fn.sub(at, size), -step), 1), fn.add(fn.floordiv(at, -step), 1)

    def _ceildiv(self, a: Value, b: int) -> Value:
        return self.fn.floordiv(self.fn.add(a, b - 1), b)

    def _row(self, dst: Access, src: Access, indices: dict[int, Value], inside: list[str]) -> None:
        fn = self.fn
        extent: Value = self.shape[self.row_axis] if self.shape else 1
        low: Value = 0
        high = extent
        for i in range(len(self.axes)):
            if self._in_row(i):
                first, end = self._range(i, indices)
                low, high = fn.maximum(low, first), fn.minimum(high, end)
        whole = low == 0 and high == extent
        if whole and "false" not in inside:
            condition = self._all(inside)
            if condition is None:
                self._copy(dst, src, 0, extent)
            else:
                fn.when(condition, lambda: self._copy(dst, src, 0, extent), lambda: self._fill(dst, 0, extent))
            return
        low = fn.minimum(low, extent)
        high = fn.maximum(high, low)
        condition = self._all(inside)
        if condition is not None:
            high = fn.emit(f"select i1 {condition}, i64 {high}, i64 {low}")
        self._fill(dst, 0, low)
        self._copy(dst, src, low, high)
        self._fill(dst, high, extent)

    def _all(self, conditions: list[str]) -> str | None:
        result: str | None = None
        for condition in conditions:
            result = condition if result is None else self.fn.emit(f"and i1 {result}, {condition}")
        return result

    def _lanes(self) -> int:
        bytes_ = max(a.dtype.bytes if not a.dtype.is_float else max(a.dtype.bytes, 4) for a in (self.dst, self.src))
        lanes = self.code.host.vector_bytes // bytes_
        extent = self.shape[self.row_axis] if self.shape else 1
        while isinstance(extent, int) and lanes > 1 and lanes // 2 >= extent:
            lanes //= 2
        return lanes

    def _fill(self, dst: Access, start: Value, end: Value) -> None:
        code, fn = self.code, self.fn
        dst = dst.advanced(fn, self.row_axis, start) if self.shape else dst

        def body(c: Chunk, held: list[Vec]) -> list[Vec]:
            for u in range(c.count):
                at = dst.advanced(fn, self.row_axis, fn.add(c.start, u * c.lanes))
                value = code.const(self.pad, dst.dtype, c.lanes)
                store_vector(code, value, at.pointer, dst.step(self.row_axis), c.mask)
            return held

        over_vectors(code, fn.sub(end, start), self._lanes(), 1, [], body)

    def _copy(self, dst: Access, src: Access, start: Value, end: Value) -> None:
        code, fn, axis = self.code, self.fn, self.row_axis
        dst, src = dst.advanced(fn, axis, start), src.advanced(fn, axis, start)

        def body(c: Chunk, held: list[Vec]) -> list[Vec]:
            for u in range(c.count):
                offset = fn.add(c.start, u * c.lanes)
                to, at = dst.advanced(fn, axis, offset), src.advanced(fn, axis, offset)
                value = load_vector(code, at.pointer, src.dtype, src.step(axis), c.lanes, c.mask)
                value = code.broadcast(convert(code, value, dst.dtype), c.lanes)
                store_vector(code, value, to.pointer, dst.step(axis), c.mask)
            return held

        over_vectors(code, fn.sub(end, start), self._lanes(), 2, [], body)
