"""The k loops of one register tile: accumulators += a[rows, k..] * b[k.., vectors].

Loops test at the bottom and carry pointers, so that a step of the innermost axis is a displacement where the stride is
static. Rows whose distance is static share one base pointer; the others share one running offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegen.llvm.cube_elements import Elements
from codegen.llvm.text import Function, Value
from tensor_types.dtypes import DType

PREFETCH_READ = ("i32 0", "i32 3", "i32 1")
"""Arguments of llvm.prefetch: for reading, to the innermost level, data."""
PREFETCH_TO_L2 = ("i32 0", "i32 2", "i32 1")
"""The same to the second level, which can wait for more lines."""


@dataclass(frozen=True)
class ReductionAxis:
    """One k axis: its extent and its strides in elements of a and of b."""

    extent: Value
    a: Value
    b: Value


def merge_axes(axes: Sequence[ReductionAxis]) -> list[ReductionAxis]:
    """The same iteration with fewer axes: axes of extent one go, and an axis that continues its inner one joins it."""
    merged: list[ReductionAxis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and isinstance(axis.extent, int):
            outer = merged[-1]
            strides = (axis.a, axis.b, outer.a, outer.b, outer.extent)
            static = all(isinstance(s, int) for s in strides)
            if static and outer.a == axis.extent * axis.a and outer.b == axis.extent * axis.b:
                merged[-1] = ReductionAxis(outer.extent * axis.extent, axis.a, axis.b)
                continue
        merged.append(axis)
    return merged


@dataclass(frozen=True)
class RegisterRow:
    """Address of one row of a: a base pointer, and a static displacement in elements."""

    base: str
    displacement: int


@dataclass(frozen=True)
class RegisterColumns:
    """The vectors of b: base pointer, element step between lanes, a mask operand or None for each vector."""

    base: str
    step: Value
    masks: tuple[str | None, ...]


@dataclass(frozen=True)
class Schedule:
    """How the innermost axis is unrolled, over how many accumulator sets, and how many steps ahead b is prefetched."""

    unroll: int
    sets: int
    prefetch_steps: int = 0


class Reduction:
    """Emits the loop nest; `run` returns the accumulators, row by row, vector by vector."""

    def __init__(
        self, fn: Function, elements: Elements, a: DType, b: DType, rows: Sequence[RegisterRow],
        columns: RegisterColumns, axes: Sequence[ReductionAxis], schedule: Schedule,
    ) -> None:  # fmt: skip
        self.fn, self.elements, self.a, self.b = fn, elements, a, b
        self.rows, self.columns, self.schedule = list(rows), columns, schedule
        self.axes = list(axes)
        self.shared = len({row.base for row in rows}) == 1
        self.size = len(rows) * len(columns.masks)

    def run(self, initial: Sequence[str]) -> list[str]:
        """The accumulators, starting from `initial`."""
        zeros = ["zeroinitializer"] * (self.size * (self.schedule.sets - 1))
        start = self.rows[0].base if self.shared else 0
        sums = self._nest(0, start, self.columns.base, [*initial, *zeros])
        parts = [sums[i : i + self.size] for i in range(0, len(sums), self.size)]
        while len(parts) > 1:
            half = len(parts) // 2
            for low, high in zip(parts[:half], parts[half:], strict=False):
                low[:] = [self.elements.add(self.fn, x, y) for x, y in zip(low, high, strict=True)]
            parts = [*parts[:half], *parts[2 * half :]]
        return parts[0]

    def _nest(self, depth: int, a: Value, b: str, sums: list[str]) -> list[str]:
        if not self.axes:
            return self._step(a, 0, b, 0, sums, 0)
        axis = self.axes[depth]
        if depth == len(self.axes) - 1:
            return self._innermost(axis, a, b, sums)

        def body(values: list[str]) -> list[str]:
            inner = self._nest(depth + 1, values[0], values[1], values[2:])
            return [str(self._move_a(values[0], axis.a)), self._move_b(values[1], axis.b), *inner]

        return self._repeat(axis.extent, a, b, sums, body)

    def _innermost(self, axis: ReductionAxis, a: Value, b: str, sums: list[str]) -> list[str]:
        unroll = self.schedule.unroll
        if isinstance(axis.extent, int) and axis.extent <= 2 * unroll:
            return self._steps(axis, axis.extent, a, b, sums)[2:]
        trips = self.fn.floordiv(axis.extent, unroll)
        rest = self.fn.sub(axis.extent, self.fn.mul(trips, unroll))
        values = self._repeat_all(trips, a, b, sums, lambda v: self._steps(axis, unroll, v[0], v[1], v[2:]))
        if isinstance(rest, int):
            return self._steps(axis, rest, values[0], values[1], values[2:])[2:]
        return self._repeat(rest, values[0], values[1], values[2:], lambda v: self._steps(axis, 1, v[0], v[1], v[2:]))

    def _steps(self, axis: ReductionAxis, count: int, a: Value, b: str, sums: list[str]) -> list[str]:
        """`count` steps in a row; also returns the positions behind them."""
        at_a, at_b = 0, 0
        for u in range(count):
            sums = self._step(a, at_a, b, at_b, sums, u % self.schedule.sets)
            if isinstance(axis.a, int):
                at_a += axis.a
            else:
                a = self._move_a(a, axis.a)
            if isinstance(axis.b, int):
                at_b += axis.b
            else:
                b = self._move_b(b, axis.b)
        return [str(self._move_a(a, at_a)), self._move_b(b, at_b), *sums]

    def _step(self, a: Value, at_a: int, b: str, at_b: int, sums: list[str], which: int) -> list[str]:
        """One k: loads the vectors of b, broadcasts each row's element of a, multiplies and adds into set `which`."""
        fn, elements, columns = self.fn, self.elements, self.columns
        storage = elements.storage(self.b)
        vectors = []
        for v, mask in enumerate(columns.masks):
            along = fn.mul(columns.step, v * elements.lanes)
            pointer = fn.offset(fn.offset(b, at_b, storage), along, storage)
            vectors.append(elements.load(fn, pointer, self.b, columns.step, mask))
        ahead = self.schedule.prefetch_steps
        if ahead and self.axes and isinstance(self.axes[-1].b, int):
            start = (at_b + ahead * self.axes[-1].b) * self.b.bytes
            for line in range(0, len(columns.masks) * elements.lanes * elements.group * self.b.bytes, 64):
                fn.call("void", "llvm.prefetch.p0", f"ptr {fn.offset(b, start + line, 'i8')}", *PREFETCH_READ)
        sums = list(sums)
        first = which * self.size
        pointers = []
        for row in self.rows:
            base = str(a) if self.shared else fn.offset(row.base, a, "i8")
            pointers.append(fn.offset(base, row.displacement + at_a, elements.storage(self.a)))
        for part in range(elements.parts):
            factors = [elements.part_of(fn, vector, part) for vector in vectors]
            for r, pointer in enumerate(pointers):
                scalar = elements.broadcast_part(fn, pointer, self.a, part)
                for v, factor in enumerate(factors):
                    at = first + r * len(factors) + v
                    sums[at] = elements.multiply_add(fn, scalar, factor, sums[at])
        return sums

    def _move_a(self, a: Value, by: Value) -> Value:
        """The position in a `by` elements further: a pointer, or the offset in bytes that all rows share."""
        if self.shared:
            return self.fn.offset(str(a), by, self.elements.storage(self.a))
        return self.fn.add(a, self.fn.mul(by, self.a.bytes))

    def _move_b(self, b: str, by: Value) -> str:
        return self.fn.offset(b, by, self.elements.storage(self.b))

    def _repeat(
        self, trips: Value, a: Value, b: str, sums: list[str], body: Callable[[list[str]], list[str]]
    ) -> list[str]:
        return self._repeat_all(trips, a, b, sums, body)[2:]

    def _repeat_all(
        self, trips: Value, a: Value, b: str, sums: list[str], body: Callable[[list[str]], list[str]]
    ) -> list[str]:
        types = ["ptr" if self.shared else "i64", "ptr", *[self.elements.vector] * len(sums)]
        return repeat(self.fn, trips, types, [a, b, *sums], body)


def repeat(
    fn: Function, trips: Value, types: Sequence[str], initial: Sequence[Value], body: Callable[[list[str]], list[str]]
) -> list[str]:
    """Runs `body` `trips` times on carried values and returns the last ones; the test is at the bottom of the loop."""
    if isinstance(trips, int) and trips <= 1:
        values = [str(value) for value in initial]
        return body(values) if trips == 1 else values
    head, done = fn.fresh("loop"), fn.fresh("done")
    before = fn.block
    if isinstance(trips, int):
        fn.branch(head)
    else:
        fn.branch_if(fn.emit(f"icmp sgt i64 {trips}, 0"), head, done)
    fn.label(head)
    left, fewer = f"%{fn.fresh('left')}", f"%{fn.fresh('fewer')}"
    names = [f"%{fn.fresh('c')}" for _ in types]
    at = len(fn.lines)
    latest = body(list(names))
    fn.do(f"{fewer} = add i64 {left}, -1")
    phis = [f"  {left} = phi i64 [ {trips}, %{before} ], [ {fewer}, %{fn.block} ]"]
    for name, type_, first, last in zip(names, types, initial, latest, strict=True):
        phis.append(f"  {name} = phi {type_} [ {first}, %{before} ], [ {last}, %{fn.block} ]")
    fn.lines[at:at] = phis
    again = fn.emit(f"icmp ne i64 {fewer}, 0")
    latch = fn.block
    fn.branch_if(again, head, done)
    fn.label(done)
    if isinstance(trips, int):
        return latest
    return [
        fn.emit(f"phi {type_} [ {first}, %{before} ], [ {last}, %{latch} ]")
        for type_, first, last in zip(types, initial, latest, strict=True)
    ]
