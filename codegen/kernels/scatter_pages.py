"""ScatterPages: rows of a cache in pages written at slots, one after the other: of equal slots the last stays.

Seen as pages[slots, heads, inner] and rows[tokens, heads, inner]; a grid index owns a head and goes through the tokens.
The kernel takes a result that already holds the pages, as that of TensorScatter does. The slot behind the last takes no
row, one further ends the task.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.ir import axis
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import ceildiv, dmin, product


@dataclass(frozen=True)
class ScatterPagesTiling(Tiling, kind="scatter_pages"):
    """`elements` of a row that pass through a tile."""

    elements: int


def lower_scatter_pages(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task that writes the rows into the node's result, which holds the pages; NotLowerable says why not."""
    body, known = body_of(node), outer_values(node)
    operator = body.nodes[0]
    if len(body.nodes) != 1 or operator.op != "ScatterPages":
        raise NotLowerable("the body is not one ScatterPages")
    pages, rows, slots = (known.get(v.name, v) for v in operator.inputs if v is not None)
    plain = all(v.format.is_plain for v in (pages, rows, slots, node.output))
    if not plain or rows.dtype.kind in ("handle", "complex"):
        raise NotLowerable("operands in plain order of numbers only")
    shape, written = shape_of(pages), shape_of(rows)
    if shape[2:] != written[1:]:
        raise NotLowerable("rows that may not be those of the pages")
    heads, inner = (shape[2], product(shape[3:])) if len(shape) > 3 else (1, shape[2])
    if 0 in (*shape, *written):
        return []

    def emit(chosen: ScatterPagesTiling) -> list[Record]:
        task = KernelTask(node, "scatter_pages", target)
        paths = MemoryPaths(task, target)
        room = task.extent(shape[0]) * task.extent(shape[1])
        tokens, outer, width = task.extents((written[0], heads, inner))
        source = task.operand(rows, shape=(tokens, outer, width))
        places = task.operand(slots, shape=(tokens,))
        into = task.operand(node.output, "inout", (room, outer, width))
        paths.require(rows.dtype)
        head = paths.grid(outer)
        columns = min(inner, chosen.elements) if isinstance(inner, int) else chosen.elements
        passing = paths.tile(rows.dtype, (columns,))
        with task.loop("t", tokens) as t:
            slot = task.read("slot", places.view(t, shape=()), 0, room)
            with task.when(slot, "<", room), task.loop("c", ceildiv(width, columns)) as c:
                size = (dmin(columns, width - columns * c),)
                held = passing.window((0,), size)
                task.load(held, source.view(t, head, columns * c + axis(0), shape=size))
                task.store(into.view(slot, head, columns * c + axis(0), shape=size), held)
        return [task.record(work=tokens * outer * width)]

    return first_fit((ScatterPagesTiling(elements) for elements in halvings(1 << 12, 32)), emit, tiling)
