"""Numbers as bytes with a scale for each block along the last axis, and the sums of the bytes: QuantizeBlocks.
With `lows` the bytes count from the least number of a block on.

What a product of codes (`block_matmul`) takes for its left operand. A grid index has a block of rows.
"""

from __future__ import annotations

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import NotLowerable, block_extent, body_of, outer_values, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.targets.target import Target
from codegen.tile.build import Buffer
from codegen.tile.ir import View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, product
from tensor_types.dtypes import F32, I8, I32, U8

_ROWS = 8
_LARGEST, _STEPS = 127.0, 255.0
_LEAST = 2.0**-120
"""What the largest number of a block counts as at least, so that blocks of zeros have a finite factor."""


def lower_quantize_blocks(node: Node, target: Target) -> list[Record]:
    """One task for a Fused node around a QuantizeBlocks; NotLowerable says why there is none."""
    (anchor,) = body_of(node).nodes
    values = outer_values(node)
    source = anchor.inputs[0]
    assert source is not None
    x = values.get(source.name, source)
    *lead, k = shape_of(x)
    size = int(anchor.attrs["block_size"])  # type: ignore[call-overload]
    if target.explicit_memory or not isinstance(k, int):
        raise NotLowerable("blocks of numbers are quantised on hosts, along an axis of known extent")
    if any(not v.format.is_plain for v in values.values()):
        raise NotLowerable("operands in plain order only")
    if not k or 0 in lead:
        return []
    task = KernelTask(node, "quantize_blocks", target)
    paths = MemoryPaths(task, target)
    m, blocks = task.extent(product(lead)), k // size
    rows = min(m, _ROWS) if isinstance(m, int) else _ROWS
    numbers = task.operand(x, "in", (m, blocks, size))
    i = paths.grid(ceildiv(m, rows))
    whole = (block_extent(rows, i, m), blocks, size)

    def given(result: Value, shape: tuple[Dim, ...]) -> Buffer:
        outer = values.get(result.name)
        return task.workspace(result.dtype, shape) if outer is None else task.operand(outer, "out", shape)

    codes = given(anchor.outputs[0], (m, blocks, size))
    scales, sums, *lows = (given(v, (m, blocks)) for v in anchor.outputs[1:])

    def tile(shape: tuple[int, ...]) -> Buffer:
        return paths.tile(F32, shape)

    def each(buffer: Buffer, extents: tuple[Dim, ...] = whole) -> View:
        """One number for each block, seen with the axes of its elements too."""
        return buffer.view(axis(0), axis(1), shape=extents)

    held, largest, factor = tile((rows, blocks, size)), tile((rows, blocks)), tile((rows, blocks))
    x_view = numbers.view(rows * i + axis(0), axis(1), axis(2), shape=whole)
    number = held.view(axis(0), axis(1), axis(2), shape=whole)
    task.cvt(number, x_view) if x.dtype != F32 else task.mov(number, x_view)
    few = whole[:2]
    at, scale = each(largest, few), each(factor, few)

    def keep(result: Buffer, value: View) -> None:
        task.store(result.view(rows * i + axis(0), axis(1), shape=few), value)

    if lows:
        least = tile((rows, blocks))
        low = each(least, few)
        task.rowmin(each(least), number, axes=(2,), nan=1)  # a NaN makes its block NaN
        task.rowmax(each(largest), number, axes=(2,), nan=1)
        keep(lows[0], low)
        task.sub(at, at, low)
        task.sub(number, number, each(least))
    else:
        magnitude = tile((rows, blocks, size)).view(axis(0), axis(1), axis(2), shape=whole)
        task.abs(magnitude, number)
        task.rowmax(each(largest), magnitude, axes=(2,), nan=1)
    task.max(at, at, _LEAST)
    task.mul(scale, at, 1 / (_STEPS if lows else _LARGEST))
    keep(scales, scale)
    task.recip(scale, scale)
    task.mul(number, number, each(factor))
    task.round(number, number)
    if anchor.outputs[2].name in values:
        task.rowsum(each(largest), number, axes=(2,))
        keep(sums, at)
    # By way of i32, which is how vector units narrow.
    wide = paths.tile(I32, (rows, blocks, size)).view(axis(0), axis(1), axis(2), shape=whole)
    task.cvt(wide, number)
    bytes_ = paths.tile(U8 if lows else I8, (rows, blocks, size)).view(axis(0), axis(1), axis(2), shape=whole)
    task.cvt(bytes_, wide)
    task.store(codes.view(rows * i + axis(0), axis(1), axis(2), shape=whole), bytes_)
    return [task.record(8 * product(lead) * k)]
