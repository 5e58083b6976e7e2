"""Loops over vectors: a run-time or static extent cut into unrolled vectors, single vectors and a tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from codegen.llvm.access import Access
from codegen.llvm.text import Function, Value
from codegen.llvm.vector_code import Vec, VectorCode, vector_type


@dataclass(frozen=True)
class Chunk:
    """`count` vectors of `lanes` elements from index `start`; the mask, if any, belongs to a single vector."""

    start: Value
    count: int
    lanes: int
    mask: Vec | None = None


Body = Callable[[Chunk, list[Vec]], list[Vec]]
"""Takes a chunk and the carried vectors; gives their next values."""


def carried(code: VectorCode, extent: Value, step: int, start: Value, held: list[Vec],
            body: Callable[[Value, list[Vec]], list[Vec]]) -> list[Vec]:  # fmt: skip
    """for i in range(start, extent, step) with vectors carried from one turn to the next."""
    fn = code.fn
    if isinstance(extent, int) and isinstance(start, int):
        if extent <= start:
            return held
        if extent <= start + step:
            return body(start, held)
    types = [vector_type(v.dtype, v.lanes) for v in held]
    with fn.carried_loop(extent, types, [v.text for v in held], step, start) as loop:
        inside = [Vec(text, v.dtype, v.lanes) for text, v in zip(loop.values, held, strict=True)]
        loop.next = [v.text for v in body(loop.index, inside)]
    return [Vec(text, v.dtype, v.lanes) for text, v in zip(loop.results, held, strict=True)]


def over_vectors(code: VectorCode, extent: Value, lanes: int, unroll: int, held: list[Vec], body: Body) -> list[Vec]:
    """Runs the body over `extent` elements, `unroll` vectors at a time, with an exact tail."""
    fn = code.fn
    block = lanes * unroll
    if isinstance(extent, int):
        main = extent // block * block
        held = carried(code, main, block, 0, held, lambda i, v: body(Chunk(i, unroll, lanes), v))
        rest = (extent - main) // lanes
        if rest:
            held = body(Chunk(main, rest, lanes), held)
        done, tail = main + rest * lanes, extent % lanes
        whole_piece = tail >= 4 and tail & (tail - 1) == 0  # needs no mask
        if tail and code.host.engines.masks and not whole_piece:
            return body(Chunk(done, 1, lanes, code.lane_mask(tail, lanes)), held)
        piece = lanes // 2
        while tail:
            if tail >= piece:
                held = body(Chunk(done, 1, piece), held)
                done, tail = done + piece, tail - piece
            piece //= 2
        return held
    main_end = fn.emit(f"and i64 {extent}, {-block}")
    if block > 1:
        held = carried(code, main_end, block, 0, held, lambda i, v: body(Chunk(i, unroll, lanes), v))
    else:
        return carried(code, extent, 1, 0, held, lambda i, v: body(Chunk(i, 1, 1), v))
    if code.host.engines.masks:
        return carried(
            code, extent, lanes, main_end, held,
            lambda i, v: body(Chunk(i, 1, lanes, code.lane_mask(fn.sub(extent, i), lanes)), v),
        )  # fmt: skip
    single_end: Value = main_end
    if unroll > 1:
        single_end = fn.emit(f"and i64 {extent}, {-lanes}")
        held = carried(code, single_end, lanes, main_end, held, lambda i, v: body(Chunk(i, 1, lanes), v))
    if lanes == 1:
        return held
    return carried(code, extent, 1, single_end, held, lambda i, v: body(Chunk(i, 1, 1), v))


def over_rows(code: VectorCode, extent: Value, rows: int, body: Callable[[Value, int], None]) -> None:
    """Runs the body over `extent` indices, `rows` at a time; what is left over takes smaller blocks."""
    fn = code.fn
    if isinstance(extent, int):
        done = 0
        while rows:
            end = done + (extent - done) // rows * rows
            if end > done:
                with fn.loop(end, rows, done) as index:
                    body(index, rows)
            done, rows = end, rows // 2
        return
    main_end: Value = extent if rows == 1 else fn.sub(extent, fn.mod(extent, rows))
    with fn.loop(main_end, rows) as index:
        body(index, rows)
    if rows > 1:
        with fn.loop(extent, 1, main_end) as index:
            body(index, 1)


@contextmanager
def nest(
    fn: Function, extents: Mapping[int, Value], accesses: Sequence[Access]
) -> Iterator[tuple[dict[int, Value], list[Access]]]:
    """Loops over the axes of `extents`, outermost first: the indices, and the accesses advanced to them."""
    indices: dict[int, Value] = {}
    moved = list(accesses)
    with ExitStack() as stack:
        for axis, extent in extents.items():
            indices[axis] = stack.enter_context(fn.loop(extent))
            moved = [a.advanced(fn, axis, indices[axis]) for a in moved]
        yield indices, moved
