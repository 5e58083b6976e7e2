"""ScatterND by whole rows and ScatterElements: a copy of the data, then the updates in the order of their indices.

Seen as data[outer, size, inner] and updates[outer, count, inner]: each grid index owns some columns, copies them and
scatters into them, so that no two touch an element and the order of combination does not depend on threads.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region import grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product
from tensor_types.dtypes import I32, I64


@dataclass(frozen=True)
class ScatterTiling(Tiling, kind="scatter"):
    """`columns` of a grid index; `elements` of a block that passes through a tile."""

    columns: int
    elements: int


def lower_scatter(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node of one operator; NotLowerable for indices of several axes or of a part of the data."""
    body, known = body_of(node), outer_values(node)
    operator = body.nodes[0]
    inputs = [v for v in operator.inputs if v is not None]
    if len(body.nodes) != 1 or len(inputs) != 3:
        raise NotLowerable("scatter kernels hold one operator")
    data, indices, updates = (known.get(v.name, v) for v in inputs)
    result = node.output
    if not all(v.format.is_plain for v in (data, indices, updates, result)):
        raise NotLowerable(f"{operator.op} in this format")
    if any(v.dtype.kind in ("handle", "complex") for v in (data, updates)):
        raise NotLowerable(f"{data.dtype} has no tile instructions")
    reduce = str(operator.attrs.get("reduction") or "none")
    if data.dtype.kind == "bool" and reduce != "none":
        raise NotLowerable("truth values are not combined")
    shape, places = shape_of(data), shape_of(indices)
    if operator.op == "ScatterND":
        if not shape or not places or places[-1] != 1:
            raise NotLowerable("ScatterND by several axes")
        where, count = 0, product(places[:-1])
    else:
        where = int(operator.attrs.get("axis", 0)) % max(len(shape), 1)  # type: ignore[arg-type]
        if not shape or any(a != b for k, (a, b) in enumerate(zip(shape, places, strict=True)) if k != where):
            raise NotLowerable("ScatterElements into a corner")
        count = places[where]
    outer, inner = product(shape[:where]), product(shape[where + 1 :])
    if 0 in (outer, shape[where], inner):
        return []

    def emit(chosen: ScatterTiling) -> list[Record]:
        task = KernelTask(node, "scatter", target)
        extents = [task.extent(outer), task.extent(shape[where]), task.extent(inner)]
        updated = task.extent(count)
        _emit(task, target, (data, indices, updates, result), extents, updated, operator.op, reduce, chosen)
        return [task.record(work=product(extents) + extents[0] * updated * extents[2], may_alias=((1, 0),))]

    candidates = (ScatterTiling(columns, 16 * columns) for columns in halvings(256, 32))
    return first_fit(candidates, emit, tiling)


def _emit(
    task: KernelTask, target: Target, values: tuple[Value, Value, Value, Value], extents: list[Dim], count: Dim,
    op: str, reduce: str, tiling: ScatterTiling,
) -> None:  # fmt: skip
    paths = MemoryPaths(task, target)
    data, indices, updates, result = values
    outer, size, inner = extents
    x, y = task.operand(data, shape=extents), task.operand(result, "out", extents)
    source = task.operand(updates, shape=(outer, count, inner))
    index = _Indices(task, indices, (outer, count, inner) if op == "ScatterElements" else (count,), paths)
    width = min(inner, tiling.columns) if isinstance(inner, int) else tiling.columns
    rows = max(1, tiling.elements // max(width, 32 // data.dtype.bytes))
    (at, column), (one, columns) = grid_blocks(task, (outer, inner), (1, width))
    paths.require(data.dtype)
    passing = paths.tile(data.dtype, (1, rows, width))
    with task.loop("r", ceildiv(size, rows)) as r:
        block = (one, dmin(rows, size - rows * r), columns)
        held = passing.window((0, 0, 0), block)
        task.load(held, x.window((at, rows * r, column), block))
        task.store(y.window((at, rows * r, column), block), held)
    if count == 0:
        return
    into = y.window((at, 0, column), (one, size, columns))
    if not paths.explicit:
        block = (one, count, columns)
        task.instr("TSCATTER", into, source.window((at, 0, column), block), index.view((at, 0, column), block), axis=1,
                   reduce=reduce, wrap=1)  # fmt: skip
        return
    with task.loop("u", ceildiv(count, rows)) as u:
        block = (one, dmin(rows, count - rows * u), columns)
        held = passing.window((0, 0, 0), block)
        task.load(held, source.window((at, rows * u, column), block))
        chosen = index.loaded((at, rows * u, column), block, (1, rows, width))
        task.instr("TSCATTER", into, held, chosen, axis=1, reduce=reduce, wrap=1)


class _Indices:
    """The indices as views of [outer, count, inner]: one for each row, or one for each element.

    The vector engine of a chip has no 64-bit integers: of i64 indices it takes the low words.
    """

    def __init__(self, task: KernelTask, value: Value, shape: tuple[Dim, ...], paths: MemoryPaths) -> None:
        self._task, self._paths = task, paths
        self._axes = (1,) if len(shape) == 1 else (0, 1, 2)
        self._words = paths.explicit and value.dtype == I64
        self._buffer: Buffer = (
            task.operand(value, shape=(*shape, 2), dtype=I32) if self._words else task.operand(value, shape=shape)
        )
        paths.require(self._buffer.dtype)

    def view(self, start: tuple[Dim, ...], block: tuple[Dim, ...]) -> View:
        """The indices of a block where they lie."""
        return self._buffer.view(*(start[k] + axis(k) for k in self._axes), shape=block)

    def loaded(self, start: tuple[Dim, ...], block: tuple[Dim, ...], most: tuple[int, ...]) -> View:
        """The indices of a block, of static extents `most` at most, in a tile."""
        tile = self._paths.tile(self._buffer.dtype, [most[k] for k in self._axes])
        window = [block[k] for k in self._axes]
        place = [start[k] + axis(i) for i, k in enumerate(self._axes)]
        words = (0,) if self._words else ()
        self._task.load(tile.window((0,) * len(window), window), self._buffer.view(*place, *words, shape=window))
        return tile.view(*(axis(k) for k in self._axes), shape=block)
