"""The k loops for a transposed b, whose unit stride lies in k: one dot product per column, reduced across lanes.

A tile is as many columns as a vector has lanes and one row of a, or a few where k is short: they share the loads of the
columns. Each column has an accumulator whose lanes run over k; a tree of shuffles and additions turns the columns'
accumulators into one vector over n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.llvm.cube_elements import Elements, Factor
from codegen.llvm.cube_reduction import PREFETCH_TO_L2, ReductionAxis, RegisterRow, repeat
from codegen.llvm.text import Function, Value
from codegen.targets.hosts import HostClass
from tensor_types.dtypes import DType

_SHORT = 8
"""Vectors of k that are read column by column."""
_AHEAD = 4
"""Tiles that columns are fetched ahead: into the second-level cache, which can wait for more lines than the first."""


@dataclass(frozen=True)
class DotColumns:
    """Addresses of b's columns (at most one per lane) and the bytes from each to that of the next tile; 0: that one is
    not fetched ahead."""

    columns: Sequence[RegisterRow]
    tile_bytes: int


def is_dot(axes: Sequence[ReductionAxis], n_step: Value) -> bool:
    """True if the innermost k axis is the one with unit strides, in a and b alike."""
    return bool(axes) and n_step != 1 and axes[-1].a == 1 and axes[-1].b == 1


def rows_together(target: HostClass, axes: Sequence[ReductionAxis], lanes: int) -> int:
    """Rows that a tile should have: with a short k their accumulators are reduced after every few columns, so that
    registers remain for those of other rows."""
    short = len(axes) == 1 and isinstance(axes[0].extent, int) and axes[0].extent <= _SHORT * lanes
    return max(1, target.registers // 8) if short else 1


class DotReduction:
    """Emits the loop nest of a tile; `run` returns the vectors of dot products, one for each row."""

    def __init__(
        self, fn: Function, elements: Elements, a: DType, b: DType, rows: Sequence[RegisterRow], columns: DotColumns,
        axes: Sequence[ReductionAxis],
    ) -> None:  # fmt: skip
        self.fn, self.elements, self.a, self.b = fn, elements, a, b
        self.columns, self.axes = columns, list(axes)
        self.rows = [fn.offset(row.base, row.displacement, elements.storage(a)) for row in rows]

    def run(self) -> list[str]:
        """For each row a vector whose lane j is the dot product with column j; lanes without a column are zero."""
        extent = self.axes[0].extent
        if len(self.axes) == 1 and isinstance(extent, int) and extent <= _SHORT * self.elements.lanes:
            return self._short(extent)
        zeros = ["zeroinitializer"] * len(self.columns.columns)
        return [self._joined([[sum_] for sum_ in self._nest(0, row, 0, zeros)])[0] for row in self.rows]

    def _joined(self, columns: Sequence[list[str]]) -> list[str]:
        """For each row one vector of the columns' accumulators, which are given column by column."""
        return self._reduced(0, self.elements.lanes, len(columns), lambda column: columns[column])

    def _short(self, extent: int) -> list[str]:
        """A short k at once, so that columns which lie one behind the other are read in their order."""
        places = self._places(extent)
        left = [self._left(row, places) for row in self.rows]
        zeros = ["zeroinitializer"] * len(self.rows)
        columns = self.columns.columns
        return self._reduced(
            0, self.elements.lanes, len(columns), lambda column: self._column(columns[column], 0, places, left, zeros)
        )

    def _reduced(self, first: int, count: int, there: int, column: Callable[[int], list[str]]) -> list[str]:
        """For each row the sums of columns `first` .., `count` of them side by side in every run of lanes; those from
        number `there` on are zero. Columns are joined as soon as they are there, so few accumulators wait."""
        if first >= there:
            return ["zeroinitializer"] * len(self.rows)
        if count == 1:
            return column(first)
        half = count // 2
        low = self._reduced(first, half, there, column)
        high = self._reduced(first + half, half, there, column)
        return [join_lanes(self.fn, self.elements, x, y, half) for x, y in zip(low, high, strict=True)]

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
        places = self._places(extent)
        left = [self._left(a, places)]
        pairs = zip(self.columns.columns, sums, strict=True)
        return [self._column(column, at_b, places, left, [sum_])[0] for column, sum_ in pairs]

    def _places(self, extent: int) -> list[tuple[int, str | None]]:
        """Where vectors of k start, and their masks."""
        lanes = self.elements.lanes
        return [
            (start, None if start + lanes <= extent else lane_mask(self.fn, lanes, extent - start))
            for start in range(0, extent, lanes)
        ]

    def _left(self, row: str, places: Sequence[tuple[int, str | None]]) -> list[Factor]:
        fn, elements = self.fn, self.elements
        return [elements.load(fn, fn.offset(row, at, elements.storage(self.a)), self.a, 1, mask) for at, mask in places]

    def _column(
        self, column: RegisterRow, at_b: Value, places: Sequence[tuple[int, str | None]],
        left: Sequence[Sequence[Factor]], sums: Sequence[str],
    ) -> list[str]:  # fmt: skip
        """Each row's sum with the products of a column added."""
        fn, elements = self.fn, self.elements
        moved, sums = fn.offset(column.base, at_b, "i8"), list(sums)
        for number, (at, mask) in enumerate(places):
            pointer = fn.offset(moved, column.displacement + at, elements.storage(self.b))
            self._prefetch(pointer)
            right = elements.load(fn, pointer, self.b, 1, mask)
            sums = [elements.multiply_add(fn, row[number], right, s) for row, s in zip(left, sums, strict=True)]
        return sums

    def _prefetch(self, pointer: str) -> None:
        if self.columns.tile_bytes:
            ahead = self.fn.offset(pointer, _AHEAD * self.columns.tile_bytes, "i8")
            self.fn.call("void", "llvm.prefetch.p0", f"ptr {ahead}", *PREFETCH_TO_L2)

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


def join_lanes(fn: Function, elements: Elements, x: str, y: str, width: int) -> str:
    """The columns of x before those of y, each in half as many parts. Both hold `width` columns: side by side within
    128 bits, where these hold more, else in parts that lie one behind the other, 128 bits each. Within 128 bits lanes
    are interleaved, wider ones are taken whole: what processors do fastest."""
    lanes, t = elements.lanes, elements.vector
    unit = min(lanes, 16 // elements.acc.bytes)
    picks: tuple[list[int], list[int]] = ([], [])
    for side, pick in enumerate(picks):
        if width < unit:
            half = unit // 2
            for start in range(side * half, lanes, unit):
                for run in range(start, start + half, width):
                    pick += [*range(run, run + width), *range(lanes + run, lanes + run + width)]
        else:
            for run in [*range(side * unit, lanes, 2 * unit), *range(lanes + side * unit, 2 * lanes, 2 * unit)]:
                pick += range(run, run + unit)
    parts = []
    for pick in picks:
        places = ", ".join(f"i32 {lane}" for lane in pick)
        parts.append(fn.emit(f"shufflevector {t} {x}, {t} {y}, <{lanes} x i32> <{places}>"))
    return elements.add(fn, *parts)
