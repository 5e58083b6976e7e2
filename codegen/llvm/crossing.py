"""Blocks whose lanes lie across memory: operands that are contiguous along another class than the vector class.

Two shapes are turned in registers instead of element by element:
- *square*: as many rows along the contiguous class as there are lanes; whole vectors are moved and transposed.
- *interleaved*: the contiguous class has few elements n, and the vector class steps by n; n vectors lie side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen.llvm.access import Access, Point, point
from codegen.llvm.transpose import transposed
from codegen.llvm.vector_code import Vec, VectorCode, memory_type
from codegen.llvm.vector_memory import load_vector, store_vector
from tensor_types.dims import Dim

MOST_INTERLEAVED = 8
MOST_SQUARE = 16


def interleaved_class(steps: Mapping[int, Dim], extents: Mapping[int, Dim], vector: int) -> int | None:
    """The contiguous class of few elements that the vector class steps over, if memory is interleaved that way."""
    width = steps.get(vector, 0)
    if not isinstance(width, int) or not 2 <= width <= MOST_INTERLEAVED:
        return None
    return next((c for c, s in steps.items() if s == 1 and c in extents and c != vector and extents[c] == width), None)


def square_class(steps: Mapping[int, Dim], extents: Mapping[int, Dim], vector: int) -> int | None:
    """The class other than the vector class along which memory is contiguous."""
    if steps.get(vector, 0) in (0, 1):
        return None
    return next((c for c, s in steps.items() if s == 1 and c in extents and c != vector), None)


def selected(code: VectorCode, sources: Sequence[Vec], wanted: Sequence[int]) -> Vec:
    """A vector of the lanes `wanted` of all sources laid end to end, by two-input shuffles."""
    lanes = sources[0].lanes
    result: Vec | None = None
    for number, source in enumerate(sources):
        if all(w // lanes != number for w in wanted):
            continue
        if result is None:
            result = code.shuffle(source, source, [w % lanes if w // lanes == number else 0 for w in wanted])
        else:
            result = code.shuffle(
                result, source, [lanes + w % lanes if w // lanes == number else i for i, w in enumerate(wanted)]
            )
    assert result is not None
    return result


def _rows(points: Sequence[Point], loop: int) -> list[int]:
    return sorted({dict(at).get(loop, 0) for at in points})


def _turn(access: Access, points: Sequence[Point], vector: int, lanes: int) -> tuple[str, int] | None:
    """('square' or 'interleaved', contiguous class) if the points of a block fill one of the two shapes."""
    if access.block_steps is not None or lanes < 4:
        return None
    step = access.step(vector)
    for loop, unit in access.steps:
        if unit != 1 or loop == vector:
            continue
        rows = _rows(points, loop)
        if isinstance(step, int) and rows == list(range(step)):
            return "interleaved", loop
        if rows == list(range(lanes)):
            return "square", loop
    return None


def load_block(code: VectorCode, access: Access, points: Sequence[Point], vector: int, lanes: int,
               loops: frozenset[int]) -> dict[Point, Vec] | None:  # fmt: skip
    """The operand's values at all points, loaded as whole vectors; None if the block has neither shape."""
    turn = _turn(access, points, vector, lanes)
    if turn is None:
        return None
    shape, loop = turn
    kind, step, result = memory_type(access.dtype), access.step(vector), {}
    for rest in _others(points, loop, loops):
        base = access.address(code.fn, rest)
        if shape == "square":
            addresses = [code.fn.offset(base, code.fn.mul(step, lane), kind) for lane in range(lanes)]
            rows = transposed(code, [load_vector(code, a, access.dtype, 1, lanes) for a in addresses])
        else:
            assert isinstance(step, int)
            run = [
                load_vector(code, code.fn.offset(base, lanes * j, kind), access.dtype, 1, lanes) for j in range(step)
            ]
            rows = [selected(code, run, [lane * step + row for lane in range(lanes)]) for row in range(step)]
        for row, value in enumerate(rows):
            result[point({**dict(rest), loop: row})] = value
    return result


def store_block(code: VectorCode, access: Access, values: Mapping[Point, Vec], vector: int, lanes: int) -> bool:
    """Stores the values of all points as whole vectors; False (nothing done) if they have neither shape."""
    points = list(values)
    turn = _turn(access, points, vector, lanes)
    if turn is None:
        return False
    shape, loop = turn
    kind, step = memory_type(access.dtype), access.step(vector)
    for rest in _others(points, loop, frozenset(c for at in points for c, _ in at)):
        base = access.address(code.fn, rest)
        rows = [values[point({**dict(rest), loop: row})] for row in _rows(points, loop)]
        if shape == "square":
            for lane, value in enumerate(transposed(code, rows)):
                store_vector(code, value, code.fn.offset(base, code.fn.mul(step, lane), kind), 1)
            continue
        for j in range(len(rows)):
            places = range(j * lanes, (j + 1) * lanes)
            value = selected(code, rows, [(p % len(rows)) * lanes + p // len(rows) for p in places])
            store_vector(code, value, code.fn.offset(base, lanes * j, kind), 1)
    return True


def _others(points: Sequence[Point], loop: int, loops: frozenset[int]) -> list[Point]:
    """The points without their place along one class, each once."""
    return sorted({tuple((c, o) for c, o in at if c != loop and c in loops) for at in points})
