"""Element-wise regions: any number of operators over one index space, any dtypes, several results, one loop nest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codegen.kernels.attached import Attached, store_results
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region_space import Space
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product

_BLOCK, _LEAST = 1 << 13, 64
"""Elements of a block: long enough to pay for a grid index, short enough that spilled tiles stay in L2."""
_MANY, _SMALL_BLOCK = 40, 1 << 10
"""Of more operators than this, many results of a block live at once."""
_RUN_TIME_ROW = 1 << 10
"""Elements of a row whose length only the run decides."""


@dataclass(frozen=True)
class RegionTiling(Tiling, kind="region"):
    """`elements` of a block at most, inner axes first."""

    elements: int


def region_tilings(operators: int) -> Iterator[RegionTiling]:
    """Tilings for so many element-wise operators over one block."""
    return map(RegionTiling, halvings(_BLOCK if operators <= _MANY else _SMALL_BLOCK, _LEAST))


def blocks(extents: Sequence[Dim], most: int) -> tuple[int, ...]:
    """A block of at most `most` elements, inner axes first; equal parts where sizes are known."""
    result: list[int] = []
    left = most
    for extent in reversed(extents):
        if isinstance(extent, int):
            size = max(1, min(extent, left))
            parts = -(-max(extent, 1) // size)
            size = -(-max(extent, 1) // parts)
        else:
            size = max(1, min(left, _RUN_TIME_ROW if not result and len(extents) > 1 else left))
        result.append(size)
        left = max(1, left // size)
    return tuple(reversed(result))


def grid_blocks(task: KernelTask, extents: Sequence[Dim], block: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """Declares the grid over blocks: (start, extent) of this index's block along every axis."""
    starts: list[Dim] = []
    counts: list[Dim] = []
    for i, (extent, size) in enumerate(zip(extents, block, strict=True)):
        if isinstance(extent, int) and extent <= size:
            starts.append(0)
            counts.append(extent)
            continue
        start = task.grid(f"g{i}", ceildiv(extent, size)) * size
        starts.append(start)
        whole = size == 1 or (isinstance(extent, int) and extent % size == 0)
        counts.append(size if whole else dmin(size, extent - start))
    return starts, counts


def lower_region(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node of element-wise operators; NotLowerable says why there is none."""
    body = body_of(node)
    values = outer_inputs(node)
    attached = Attached(body.nodes, values)
    outputs = outer_outputs(node)
    first = outputs[0][1]
    shape = shape_of(first)
    if any(o.shape != shape or o.format != first.format for _, o in outputs):
        raise NotLowerable("results of different shapes")
    if any(d == 0 for d in shape):
        return []
    candidates = region_tilings(len(body.nodes))
    return first_fit(candidates, lambda chosen: _emit(node, target, attached, chosen), tiling)


def _emit(node: Node, target: Target, attached: Attached, tiling: RegionTiling) -> list[Record]:
    outputs = outer_outputs(node)
    first = outputs[0][1]
    shape = shape_of(first)
    task = KernelTask(node, "region", target)
    paths = MemoryPaths(task, target)
    space = Space(task, shape, first.format, [*attached.extras.values(), *(o for _, o in outputs)])
    block = blocks(space.extents, tiling.elements)
    starts, counts = grid_blocks(task, space.extents, block)
    index = [s + axis(i) for i, s in enumerate(starts)]
    tiles = block or (1,)
    if target.explicit_memory:  # rows are whole blocks of a chip's memory, for the smallest element
        tiles = (*tiles[:-1], -(-tiles[-1] // 32) * 32)
    emitter = ElementwiseEmitter(task, tiles, counts or (1,))

    def view(value: Value, role: str = "in") -> View:
        return space.view(value, index, emitter.extents, role)

    operands = attached.emit(emitter, paths, view, {}, body_of(node).outputs)
    store_results(paths, emitter, outputs, operands, lambda value: view(value, "out"))
    return [task.record(work=product(task.extent(d) for d in shape) * len(body_of(node).nodes))]
