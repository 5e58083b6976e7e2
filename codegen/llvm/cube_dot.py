"""The k loops for a transposed b, whose unit stride lies in k: one dot product per column, reduced across lanes.

A tile is one row of a and as many columns as a vector has lanes. Each column has an accumulator whose lanes run over
k; at the end a tree of shuffles and additions turns the columns' accumulators into one vector over n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.llvm.cube_elements import Elements
from codegen.llvm.cube_reduction import ReductionAxis, RegisterRow, repeat
from codegen.llvm.text import Function, Value
from tensor_types.dtypes import DType

_SHORT = 8
"""Vectors of k that are read column by column."""
_AHEAD = 4
"""Tiles that columns are fetched ahead: into the second-level cache, which can wait for more lines than the first one
(keys of a decoder from memory on a Zen 4: 1.5 times the rate of the next tile into the first)."""
_TO_L2 = ("i32 0", "i32 2", "i32 1")


@dataclass(frozen=True)
class DotColumns:
    """Addresses of b's columns (at most one per lane) and the bytes from each to that of the next tile, 0: unknown."""

    columns: Sequence[RegisterRow]
    tile_bytes: int


def is_dot(axes: Sequence[ReductionAxis], n_step: Value) -> bool:
    """True if the innermost k axis is the one with unit strides, in a and b alike."""
    return bool(axes) and n_step != 1 and axes[-1].a == 1 and axes[-1].b == 1


class DotReduction:
    """Emits the loop nest of one row; `run` returns the vector of dot products."""

    def __init__(
        self, fn: Function, elements: Elements, a: DType, b: DType, row: str, columns: DotColumns,
        axes: Sequence[ReductionAxis],
    ) -> None:  # fmt: skip
        self.fn, self.elements, self.a, self.b = fn, elements, a, b
        self.row, self.columns, self.axes = row, columns, list(axes)

    def run(self) -> str:
        """One vector: lane j is the dot product with column j; lanes without a column are zero."""
        zeros = ["zeroinitializer"] * len(self.columns.columns)
        sums = self._nest(0, self.row, 0, zeros)
        lanes = self.elements.lanes
        return reduce_across_lanes(self.fn, self.elements, [*sums, *["zeroinitializer"] * (lanes - len(sums))])

    def _nest(self, depth: int, a: str, at_b: Value, sums: list[str]) -> list[str]:
        axis = self.axes[depth]
        if depth == len(self.axes) - 1:
            return self._innermost(axis.extent, a, at_b, sums)

        def body(values: list[str]) -> list[str]:
            inner = self._nest(depth + 1, values[0], values[1], values[2:])
            return [*self._moved(values[0], values[1], axis.a, axis.b), *inner]

        return self._repeat(axis.extent, a, at_b, sums, body)[2:]

    def _innermost(self, extent: Value, a: str, at_b: Value, sums: list[str]) -> list[str]:
        fn, lanes = self.fn, self.elements.lanes
        if isinstance(extent, int) and extent <= _SHORT * lanes:
            return self._column_by_column(extent, a, at_b, sums)
        trips = fn.floordiv(extent, lanes)
        rest = fn.sub(extent, fn.mul(trips, lanes))

        def whole(values: list[str]) -> list[str]:
            stepped = self._step(values[0], values[1], values[2:], None)
            return [*self._moved(values[0], values[1], lanes, lanes), *stepped]

        def tail(values: list[str]) -> list[str]:
            mask = lane_mask(fn, lanes, rest)
            return [values[0], values[1], *self._step(values[0], values[1], values[2:], mask)]

        values = self._repeat(trips, a, at_b, sums, whole)
        some = min(rest, 1) if isinstance(rest, int) else fn.minimum(rest, 1)
        return self._repeat(some, values[0], values[1], values[2:], tail)[2:]

    def _column_by_column(self, extent: int, a: str, at_b: Value, sums: Sequence[str]) -> list[str]:
        """A short k at once, so that columns which lie one behind the other are read in their order."""
        fn, elements, lanes = self.fn, self.elements, self.elements.lanes
        starts = range(0, extent, lanes)
        masks = [None if start + lanes <= extent else lane_mask(fn, lanes, extent - start) for start in starts]
        places = list(zip(starts, masks, strict=True))
        left = [elements.load(fn, fn.offset(a, at, elements.storage(self.a)), self.a, 1, mask) for at, mask in places]
        result = []
        for column, sum_ in zip(self.columns.columns, sums, strict=True):
            moved = fn.offset(column.base, at_b, "i8")
            for part, (at, mask) in zip(left, places, strict=True):
                pointer = fn.offset(moved, column.displacement + at, elements.storage(self.b))
                self._prefetch(pointer)
                right = elements.load(fn, pointer, self.b, 1, mask)
                sum_ = elements.multiply_add(fn, part, right, sum_)
            result.append(sum_)
        return result

    def _prefetch(self, pointer: str) -> None:
        if self.columns.tile_bytes:
            ahead = self.fn.offset(pointer, _AHEAD * self.columns.tile_bytes, "i8")
            self.fn.call("void", "llvm.prefetch.p0", f"ptr {ahead}", *_TO_L2)

    def _step(self, a: str, at_b: Value, sums: Sequence[str], mask: str | None) -> list[str]:
        fn, elements = self.fn, self.elements
        left = elements.load(fn, a, self.a, 1, mask)
        result = []
        for column, sum_ in zip(self.columns.columns, sums, strict=True):
            moved = fn.offset(column.base, at_b, "i8")
            pointer = fn.offset(moved, column.displacement, elements.storage(self.b))
            if not mask:
                self._prefetch(pointer)
            result.append(elements.multiply_add(fn, left, elements.load(fn, pointer, self.b, 1, mask), sum_))
        return result

    def _moved(self, a: str, at_b: Value, by_a: Value, by_b: Value) -> list[str]:
        fn = self.fn
        return [fn.offset(a, by_a, self.elements.storage(self.a)), str(fn.add(at_b, fn.mul(by_b, self.b.bytes)))]

    def _repeat(
        self, trips: Value, a: str, at_b: Value, sums: list[str], body: Callable[[list[str]], list[str]]
    ) -> list[str]:
        types = ["ptr", "i64", *[self.elements.vector] * len(sums)]
        return repeat(self.fn, trips, types, [a, at_b, *sums], body)


def lane_mask(fn: Function, lanes: int, valid: Value) -> str:
    """The mask operand in which the first `valid` lanes are set."""
    if isinstance(valid, int):
        bits = ", ".join(f"i1 {'true' if lane < valid else 'false'}" for lane in range(lanes))
        return f"<{lanes} x i1> <{bits}>"
    iota = "<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">"
    bound = fn.splat(valid, "i64", lanes)
    return f"<{lanes} x i1> {fn.emit(f'icmp slt <{lanes} x i64> {iota}, {bound}')}"


def reduce_across_lanes(fn: Function, elements: Elements, vectors: list[str]) -> str:
    """Lane j of the result is the sum of the lanes of vectors[j]; as many vectors as lanes.

    Each level adds the lower half of every group of lanes to its upper half and packs two vectors into one.
    """
    lanes, t = elements.lanes, elements.vector
    group = lanes
    while group > 1:
        half = group // 2
        low = [lane for start in range(0, lanes, group) for lane in range(start, start + half)]
        picks = []
        for shift in (0, half):
            groups = [low[i : i + half] for i in range(0, len(low), half)]
            lanes_of = [s + shift + side * lanes for g in groups for side in (0, 1) for s in g]
            picks.append("<" + ", ".join(f"i32 {lane}" for lane in lanes_of) + ">")
        packed = []
        count = len(vectors) // 2
        for x, y in zip(vectors[:count], vectors[count:], strict=True):
            parts = [fn.emit(f"shufflevector {t} {x}, {t} {y}, <{lanes} x i32> {pick}") for pick in picks]
            packed.append(elements.add(fn, *parts))
        vectors, group = packed, half
    return vectors[0]
