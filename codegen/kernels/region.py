"""Element-wise regions: any number of operators over one index space, any dtypes, several results, one loop nest."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.epilogue import ElementwiseEmitter, Operand, can_emit, immediate
from codegen.kernels.region_space import Space, body_of, outer_outputs, outer_values
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin, product

_BLOCK = 1 << 13
"""Elements of a block on the host: long enough to pay for a grid index, short enough that spilled tiles stay in L2."""
_RUN_TIME_ROW = 1 << 10
"""Elements of a row whose length only the run decides."""


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


def lower_region(node: Node, target: Target) -> list[Record] | None:
    """One task for a Fused node of element-wise operators; None if an operator has no instructions."""
    body = body_of(node)
    if not all(can_emit(n) for n in body.nodes):
        return None
    outputs = outer_outputs(node)
    values = outer_values(node)
    used = {v.name for n in body.nodes for v in n.inputs if v is not None}
    read = [v for name, v in values.items() if name in used and immediate(v) is None]
    first = outputs[0][1]
    if first.shape is None or any(o.shape != first.shape or o.format != first.format for _, o in outputs):
        return None
    if any(v.shape is None for v in read):
        return None
    if any(d == 0 for d in first.shape):
        return []
    task = KernelTask(node, "region")
    space = Space(task, first.shape, first.format, [*read, *(o for _, o in outputs)])
    block = blocks(space.extents, _BLOCK if len(body.nodes) <= 40 else _BLOCK // 8)
    starts, counts = grid_blocks(task, space.extents, block)
    index = [s + axis(i) for i, s in enumerate(starts)]
    emitter = ElementwiseEmitter(task, block, counts)
    operands: dict[str, Operand] = {}
    for name, value in values.items():
        if name in used and immediate(value) is None:
            operands[name] = space.view(value, index, counts)
        elif (constant := immediate(value)) is not None:
            operands[name] = constant
    emitter.run(body.nodes, operands, body.outputs)
    for name, value in outputs:
        result = operands[name]
        destination = space.view(value, index, counts, "out")
        if isinstance(result, View):
            task.store(destination, result)
        else:
            task.expands(destination, result)
    return [task.record(work=product(space.extents) * len(body.nodes))]
