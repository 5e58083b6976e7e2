"""Rows behind those of a cache: Concat(past, rows), or TensorScatter of rows into a Pad of the past.

Seen as past[batch, outer, P, inner] and rows[batch, outer, S, inner], the result [batch, outer, T, inner] has the rows
of the past, and behind them the new rows; or zeros, and the new rows from `starts[b]` on. Two tasks make it: a copy of
the past, and a write of what follows, which costs nothing that grows with the past.

Where the node names two dims (`graph_opt.fusion.fuse_caches`), the result has room for more rows than T, and its first
`held` rows are there already: the copy begins behind them, and rows that would overwrite them end the task.
"""

from __future__ import annotations

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tensor_scatter import TensorScatterTiling, emit_rows
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dim, dmin, product

_ROWS = 2
"""Position of the rows among the extents."""


def lower_append(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """The copy and the write; NotLowerable says why not. A tiling is that of the write."""
    past, rows, starts, where = _operands(node)
    result = node.output
    if any(not v.format.is_plain for v in (past, rows, result)) or rows.dtype.kind in ("handle", "complex"):
        raise NotLowerable("operands in plain order of numbers only")
    shape, written, made = shape_of(past), shape_of(rows), shape_of(result)
    if where == 0 or any(a != b for k, (a, b) in enumerate(zip(shape, written, strict=True)) if k != where):
        raise NotLowerable("rows that may not be those of the cache")
    held: Dim = dim(str(node.attrs["held"])) if "held" in node.attrs else 0
    room: Dim = dim(str(node.attrs["room"])) if "room" in node.attrs else 0
    extents = [shape[0], product(shape[1:where]), shape[where], product(shape[where + 1 :])]
    total = made[where] - room
    if 0 in extents[:_ROWS] or extents[-1] == 0:
        return []
    pads = starts is not None
    copied = extents[_ROWS] - held
    records: list[Record] = []
    if copied != 0:

        def copy(chosen: TensorScatterTiling) -> list[Record]:
            task = KernelTask(node, "append", target)
            batch, outer, inner = task.extents([*extents[:_ROWS], extents[-1]])
            first, count = task.extent(held), task.extent(copied)
            source = task.operand(past, shape=(batch, outer, first + count, inner))
            behind = task.extent(made[where] - shape[where])
            into = task.operand(result, "out", (batch, outer, first + count + behind, inner))
            _emit_copy(task, source, into, (batch, outer, count, inner), first, chosen.elements)
            return [task.record(work=batch * outer * count * inner)]

        records += first_fit((TensorScatterTiling(elements) for elements in halvings(1 << 13, 32)), copy)

    def write(chosen: TensorScatterTiling) -> list[Record]:
        task = KernelTask(node, "append", target)
        count, behind = task.extent(written[where]), task.extent(room)
        batch, outer, inner = task.extents([*extents[:_ROWS], extents[-1]])
        before = task.extent(shape[where])
        end = before + (task.extent(total - shape[where]) if pads else count)
        emit_rows(
            task, MemoryPaths(task, target), (rows, starts, result), (batch, outer, count, inner), end + behind,
            None if pads else before, task.extent(held) if pads else 0, end - count, chosen.elements,
            (before, end) if pads else None,
        )  # fmt: skip
        return [task.record(work=batch * outer * count * inner)]

    return records + first_fit((TensorScatterTiling(elements) for elements in halvings(1 << 12, 32)), write, tiling)


def _emit_copy(
    task: KernelTask, source: Buffer, into: Buffer, extents: tuple[Dim, ...], first: Dim, elements: int
) -> None:
    """Copies `count` rows of extents (batch, outer, count, inner), all program dims, from row `first` on."""
    batch, outer, count, inner = extents
    paths = MemoryPaths(task, task.target)
    dtype = task.element_type(source.whole())
    paths.require(dtype)
    width = min(inner, elements) if isinstance(inner, int) else elements
    block = max(1, elements // width)
    b, o, r = paths.grid(batch), paths.grid(outer), paths.grid(ceildiv(count, block))
    passing = paths.tile(dtype, (block, width))
    with task.loop("c", ceildiv(inner, width)) as c:
        size = (dmin(block, count - block * r), dmin(width, inner - width * c))
        held = passing.window((0, 0), size)
        at = (b, o, first + block * r + axis(0), width * c + axis(1))
        task.load(held, source.view(*at, shape=size))
        task.store(into.view(*at, shape=size), held)


def _operands(node: Node) -> tuple[Value, Value, Value | None, int]:
    """The past, the new rows, where they start (None: behind the past), and the axis of the rows."""
    body, known = body_of(node), outer_values(node)
    operators = list(body.nodes)
    last = operators[-1]
    if [n.op for n in operators] == ["Concat"] and len(last.inputs) == 2:
        found, rank = [*last.inputs, None], len(shape_of(last.output))
        where = int(last.attrs["axis"]) % rank  # type: ignore[call-overload]
    elif [n.op for n in operators] == ["Pad", "TensorScatter"] and last.inputs[0] is operators[0].output:
        if last.attrs.get("mode", "linear") != "linear" or operators[0].attrs.get("mode", "constant") != "constant":
            raise NotLowerable("rows that wrap around the end of the cache")
        found = [operators[0].inputs[0], last.inputs[1], last.input(2)]
        where = int(last.attrs.get("axis", -2)) % len(shape_of(last.output))  # type: ignore[call-overload]
        if found[2] is None:
            raise NotLowerable("rows at the start of the cache")
    else:
        raise NotLowerable("the body does not append rows to a cache")
    past, rows, starts = (None if v is None else known.get(v.name, v) for v in found)
    assert past is not None and rows is not None
    return past, rows, starts, where
