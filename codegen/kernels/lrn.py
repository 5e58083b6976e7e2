"""Local response normalisation: each element over a power of the squares of its neighbours along the channels.

y[n, c, ..] = x[n, c, ..] / (bias + alpha / size * s) ** beta, where s sums the squares of channels c - (size - 1) // 2
to c + size // 2 that exist. A block loads its channels with those around them, zeros outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, body_of, outer_inputs, outer_outputs, shape_of
from codegen.kernels.region import grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit, halvings
from codegen.targets.target import Target
from codegen.tile.ir import axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import product
from tensor_types.dtypes import F32, F64

_WRITTEN_OUT = 16
"""Longest window whose sum is written out; a longer one is a loop."""


@dataclass(frozen=True)
class LrnTiling(Tiling, kind="lrn"):
    """Blocks of `channels` by `positions` behind the channels."""

    channels: int
    positions: int


def lower_lrn(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node with one LRN; NotLowerable says why there is none."""
    (lrn,) = body_of(node).nodes
    ((_, y),) = outer_outputs(node)
    source = lrn.inputs[0]
    assert source is not None
    x = outer_inputs(node)[source.name]
    if not (x.format.is_plain and y.format.is_plain):
        raise NotLowerable("values in plain order only")
    if 0 in shape_of(x):
        return []
    return first_fit(_candidates(), lambda chosen: [_emit(node, target, x, y, lrn, chosen)], tiling)


def _candidates() -> Iterator[LrnTiling]:
    """Few neighbours are loaded twice, and the squares stay in L1."""
    return (LrnTiling(64, positions) for positions in halvings(128, 16))


def _emit(node: Node, target: Target, x: Value, y: Value, lrn: Node, tiling: LrnTiling) -> Record:
    size = int(lrn.attrs["size"])  # type: ignore[arg-type]
    alpha, beta, bias = (float(lrn.attrs.get(name, value)) for name, value in
                         (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))  # type: ignore[arg-type]  # fmt: skip
    task = KernelTask(node, "lrn", target)
    paths = MemoryPaths(task, target)
    paths.require(x.dtype)
    compute = x.dtype if x.dtype in (F32, F64) else F32
    shape = shape_of(x)
    sizes = task.extents((shape[0], shape[1], product(shape[2:])))
    rows, columns = (
        min(most, extent) if isinstance(extent, int) else most
        for most, extent in zip((tiling.channels, tiling.positions), sizes[1:], strict=True)
    )
    (n, channel, position), counts = grid_blocks(task, sizes, (1, rows, columns))
    extents, around = (counts[1], counts[2]), (counts[1] + (size - 1), counts[2])
    first = channel - (size - 1) // 2
    given = task.operand(x, shape=sizes).view(n, first + axis(0), position + axis(1), shape=around)
    held = paths.tile(x.dtype, (rows + size - 1, columns))
    task.load(held.window((0, 0), around), given, pad=0)
    wide = held
    if x.dtype != compute:
        wide = paths.tile(compute, (rows + size - 1, columns))
        task.cvt(wide.window((0, 0), around), held.window((0, 0), around))
    squares = paths.tile(compute, (rows + size - 1, columns))
    task.mul(squares.window((0, 0), around), wide.window((0, 0), around), wide.window((0, 0), around))
    total = paths.tile(compute, (rows, columns)).window((0, 0), extents)
    if size > _WRITTEN_OUT:
        task.expands(total, 0.0)
        with task.loop("t", size) as t:
            task.add(total, total, squares.window((t, 0), extents))
    else:
        task.mov(total, squares.window((0, 0), extents))
        for t in range(1, size):
            task.add(total, total, squares.window((t, 0), extents))
    task.mul(total, total, alpha / size)
    task.add(total, total, bias)
    task.pow(total, total, -beta)
    task.mul(total, total, wide.window(((size - 1) // 2, 0), extents))
    if y.dtype != compute:
        narrow = paths.tile(y.dtype, (rows, columns)).window((0, 0), extents)
        task.cvt(narrow, total)
        total = narrow
    task.store(task.operand(y, "out", sizes).view(n, channel + axis(0), position + axis(1), shape=extents), total)
    return task.record((size + 20) * product(sizes))
