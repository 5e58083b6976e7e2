"""Running products along one axis: position by position, side by side over the others.

y[.., i, ..] = x[.., 0, ..] * ... * x[.., i, ..], without the last factor if `exclusive`, from the end if `reverse`.
Halves are multiplied in f32 and rounded as they are stored.
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
from tensor_types.dtypes import BF16, F16, F32


@dataclass(frozen=True)
class RunningProductTiling(Tiling, kind="running_product"):
    """Products of `outer` by `inner` positions, before and behind the axis, at once."""

    outer: int
    inner: int


def lower_running_product(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """One task for a Fused node with one CumProd; NotLowerable says why there is none."""
    (running,) = body_of(node).nodes
    ((_, y),) = outer_outputs(node)
    source, along = running.inputs[:2]
    assert source is not None and along is not None
    x = outer_inputs(node)[source.name]
    if along.data is None:
        raise NotLowerable("the axis is known at run time only")
    if not (x.format.is_plain and y.format.is_plain):
        raise NotLowerable("values in plain order only")
    if 0 in shape_of(x):
        return []
    at = int(along.data.reshape(())) % len(shape_of(x))
    return first_fit(_candidates(), lambda chosen: [_emit(node, target, x, y, running, at, chosen)], tiling)


def _candidates() -> Iterator[RunningProductTiling]:
    """Long rows behind the axis; before it, a few."""
    return (RunningProductTiling(8, inner) for inner in halvings(1 << 10, 32))


def _emit(
    node: Node, target: Target, x: Value, y: Value, running: Node, at: int, tiling: RunningProductTiling
) -> Record:
    task = KernelTask(node, "running_product", target)
    paths = MemoryPaths(task, target)
    compute = F32 if x.dtype in (F16, BF16) else x.dtype
    for dtype in (x.dtype, compute):
        paths.require(dtype)
    shape = shape_of(x)
    outer, count, inner = task.extents((product(shape[:at]), shape[at], product(shape[at + 1 :])))
    block = tuple(
        min(most, extent) if isinstance(extent, int) else most
        for most, extent in ((tiling.outer, outer), (tiling.inner, inner))
    )
    starts, extents = grid_blocks(task, (outer, inner), block)
    given, made = task.operand(x, shape=(outer, count, inner)), task.operand(y, "out", (outer, count, inner))
    total, factor = (paths.tile(compute, block).window((0, 0), extents) for _ in range(2))
    held = factor if x.dtype == compute else paths.tile(x.dtype, block).window((0, 0), extents)
    task.expands(total, 1.0 if compute.is_float else 1)
    with task.loop("i", count) as i:
        position = count - 1 - i if running.attrs.get("reverse") else i
        place = (starts[0] + axis(0), position, starts[1] + axis(1))
        task.load(held, given.view(*place, shape=extents))
        if held != factor:
            task.cvt(factor, held)

        def store() -> None:
            if held != factor:
                task.cvt(held, total)
            task.store(made.view(*place, shape=extents), total if held == factor else held)  # noqa: B023

        if running.attrs.get("exclusive"):
            store()
        task.mul(total, total, factor)
        if not running.attrs.get("exclusive"):
            store()
    return task.record(2 * product((outer, count, inner)))
