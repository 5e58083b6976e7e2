"""Gathers and running sums on a chip: blocks in UB, rows fetched from global memory by their indices."""

from __future__ import annotations

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.movement_copy import MovementTiling
from codegen.kernels.region import blocks, grid_blocks
from codegen.kernels.region_task import KernelTask
from codegen.kernels.wide_integers import in_words
from codegen.tile.build import Buffer
from codegen.tile.ir import axis
from graph_opt.ir.core import Value
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import I32, I64

_LANES = 64
"""Columns of a running sum."""


def gather_on_chip(
    task: KernelTask, tiling: MovementTiling, x: Value, indices: Value, y: Value, extents: list[Dim], size: Dim,
    each: bool,
) -> None:  # fmt: skip
    """y[o, i, n] = x[o, index, n] for x[outer, size, inner]; the index is indices[i], with `each` indices[o, i, n].

    The vector engine has no 64-bit integers: of i64 indices it takes the low words, and elements of i64 are moved as
    pairs of words, along an axis of their own.
    """
    paths = MemoryPaths(task, task.target)
    pairs: tuple[Dim, ...] = (2,) if in_words(x.dtype, task.target) else ()
    moved = I32 if pairs else x.dtype
    paths.require(moved)
    paths.require(I32 if indices.dtype == I64 else indices.dtype)
    table = task.operand(x, shape=(extents[0], size, extents[2], *pairs), dtype=moved if pairs else None)
    shape = extents if each else extents[1:2]
    wide = indices.dtype == I64
    index = task.operand(indices, shape=(*shape, 2) if wide else shape, dtype=I32 if wide else None)
    out = task.operand(y, "out", (*extents, *pairs), dtype=moved if pairs else None)
    block = (1, *blocks(extents[1:], tiling.elements))
    starts, counts = grid_blocks(task, extents, block)
    apart = (axis(3),) if pairs else ()
    origin = (0, 0, 0, *(0 for _ in pairs))
    held = paths.tile(moved, (*block, *(2 for _ in pairs)))
    used = (0, 1, 2) if each else (1,)
    chosen = paths.tile(index.dtype, [block[k] for k in used])
    place = [starts[k] + axis(i) for i, k in enumerate(used)]
    window = [counts[k] for k in used]
    task.load(chosen.window((0,) * len(used), window), index.view(*place, *((0,) if wide else ()), shape=window))
    from_rows = (counts[0], size, counts[2], *pairs)
    task.instr(
        "TGATHER", held.window(origin, (*counts, *pairs)),
        table.view(starts[0] + axis(0), axis(1), starts[2] + axis(2), *apart, shape=from_rows),
        chosen.view(*(axis(k) for k in used), shape=(*counts, *pairs)), axis=1, wrap=1,
    )  # fmt: skip
    task.store(out.window((*starts, *(0 for _ in pairs)), (*counts, *pairs)), held.window(origin, (*counts, *pairs)))


def running_sum_on_chip(
    task: KernelTask, tiling: MovementTiling, x: Buffer, y: Buffer, exclusive: bool, reverse: bool
) -> None:
    """Sums along the middle axis of x[outer, length, inner], chunk by chunk with the sum so far carried."""
    paths = MemoryPaths(task, task.target)
    paths.require(x.dtype)
    outer, length, inner = x.shape
    width = min(_LANES, inner) if isinstance(inner, int) else _LANES
    # Rows of tiles are whole blocks of 32 B.
    chunk = tiling.elements // max(width, 32 // x.dtype.bytes)
    if isinstance(length, int):
        chunk = min(chunk, length)
    starts, counts = grid_blocks(task, (outer, inner), (1, width))
    source, result = (paths.tile(x.dtype, (1, chunk, width)) for _ in range(2))
    carry = paths.tile(x.dtype, (1, width))
    carried = carry.window((0, 0), counts)
    task.expands(carried, 0)
    with task.loop("i", ceildiv(length, chunk)) as i:
        count = dmin(chunk, length - chunk * i)
        first = length - chunk * i - count if reverse else chunk * i
        window, shape = (starts[0], first, starts[1]), (counts[0], count, counts[1])
        here, sums = (t.window((0, 0, 0), shape) for t in (source, result))
        spread = carry.view(axis(0), axis(2), shape=shape)
        task.load(here, x.window(window, shape))
        task.cumsum(sums, here, axis=1, exclusive=int(exclusive), reverse=int(reverse))
        task.add(sums, sums, spread)
        task.store(y.window(window, shape), sums)
        task.rowsum(spread, here, axes=(1,), acc=1)
