"""TensorScatter: rows written into a cache at a place that a tensor says, one for each batch.

Seen as cache[batch, outer, capacity, inner] and rows[batch, outer, count, inner]: batch b's rows go to places
starts[b] .. starts[b] + count - 1. The kernel takes a result that already holds the cache (lowering sees to that: in
place for a state, by a copy else) and touches nothing but the rows, so its cost does not depend on the capacity. A
start that leads out of the cache ends the task.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.ir import axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product


@dataclass(frozen=True)
class TensorScatterTiling(Tiling, kind="tensor_scatter"):
    """`elements` of a block that passes through a tile."""

    elements: int


def lower_tensor_scatter(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task that writes the rows into the node's result, which holds the cache; NotLowerable says why not."""
    body, known = body_of(node), outer_values(node)
    operator = body.nodes[0]
    if len(body.nodes) != 1 or operator.op != "TensorScatter":
        raise NotLowerable("the body is not one TensorScatter")
    cache, rows, starts = (None if v is None else known.get(v.name, v) for v in (*operator.inputs, None)[:3])
    assert cache is not None and rows is not None
    if operator.attrs.get("mode", "linear") != "linear":
        raise NotLowerable("rows that wrap around the end of the cache")
    if any(not v.format.is_plain for v in (cache, rows, node.output)) or rows.dtype.kind in ("handle", "complex"):
        raise NotLowerable("operands in plain order of numbers only")
    shape, written = shape_of(cache), shape_of(rows)
    where = int(operator.attrs.get("axis", -2)) % len(shape)  # type: ignore[call-overload]
    if where == 0 or any(a != b for k, (a, b) in enumerate(zip(shape, written, strict=True)) if k != where):
        raise NotLowerable("rows that may not be those of the cache")
    extents = (shape[0], product(shape[1:where]), written[where], product(shape[where + 1 :]))
    if 0 in extents:
        return []

    def emit(chosen: TensorScatterTiling) -> list[Record]:
        task = KernelTask(node, "tensor_scatter", target)
        sizes = task.extents(extents)
        paths, room = MemoryPaths(task, target), task.extent(shape[where])
        first = 0 if starts is None else None
        emit_rows(task, paths, (rows, starts, node.output), sizes, room, first, 0, room - sizes[2], chosen.elements)
        return [task.record(work=product(task.extents(extents)))]

    return first_fit((TensorScatterTiling(elements) for elements in halvings(1 << 12, 32)), emit, tiling)


def emit_rows(
    task: KernelTask, paths: MemoryPaths, values: tuple[Value, Value | None, Value], extents: tuple[Dim, ...],
    room: Dim, first: Dim | None, low: Dim, high: Dim, elements: int, blank: tuple[Dim, Dim] | None = None,
) -> None:  # fmt: skip
    """Writes rows into a result of `room` rows from `first` on, or, where that is None, from where the second value
    says, which must be within `low` .. `high`. Rows of `blank`, a first one and one behind the last, that it leaves out
    become zeros. Extents (batch, outer, count, inner) and places are program dims."""
    rows, starts, result = values
    batch, outer, count, inner = extents
    source = task.operand(rows, shape=(batch, outer, count, inner))
    into = task.operand(result, "inout", (batch, outer, room, inner))
    paths.require(rows.dtype)
    b, o = paths.grid(batch), paths.grid(outer)
    start: Dim
    if first is None:
        assert starts is not None
        start = task.read("start", task.operand(starts, shape=(batch,)).view(b, shape=()), low, high)
    else:
        start = first
    width = min(inner, elements) if isinstance(inner, int) else elements
    block = max(1, elements // width)
    passing = paths.tile(rows.dtype, (block, width))

    def fill(name: str, begin: Dim, missing: Dim) -> None:
        with task.loop(f"z{name}", ceildiv(missing, block)) as z, task.loop(f"v{name}", ceildiv(inner, width)) as v:
            size = (dmin(block, missing - block * z), dmin(width, inner - width * v))
            nothing = passing.window((0, 0), size)
            task.expands(nothing, 0)
            task.store(into.view(b, o, begin + block * z + axis(0), width * v + axis(1), shape=size), nothing)

    if blank is not None:
        begin, end = blank
        with task.when(begin, "<", start):
            fill("0", begin, start - begin)
        with task.when(start + count, "<", begin):
            fill("1", begin, end - begin)
        with task.otherwise():
            fill("2", start + count, end - start - count)
    with task.loop("r", ceildiv(count, block)) as r, task.loop("c", ceildiv(inner, width)) as c:
        size = (dmin(block, count - block * r), dmin(width, inner - width * c))
        held = passing.window((0, 0), size)
        task.load(held, source.view(b, o, block * r + axis(0), width * c + axis(1), shape=size))
        task.store(into.view(b, o, start + block * r + axis(0), width * c + axis(1), shape=size), held)
