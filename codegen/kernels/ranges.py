"""Range: a ramp of whole numbers made once, from which block after block becomes start + delta * index."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.kernels.attached import above, store_results
from codegen.kernels.block_emitter import Operand, Words
from codegen.kernels.elementwise import ElementwiseEmitter
from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.movement_copy import MovementTiling
from codegen.kernels.operands import NotLowerable, shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.wide_integers import in_words
from codegen.targets.target import Target
from codegen.tile.ir import Imm, View, axis
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, ceildiv, dmin
from tensor_types.dtypes import BF16, F16, F32, I32, I64

_ROW = 32
"""Tiles have a multiple of this many elements: rows of a chip's tiles are whole blocks of 32 B in every dtype."""


def lower_range(
    node: Node, operands: Sequence[Value | None], y: Value, target: Target, tiling: MovementTiling
) -> Record | None:
    """The task that writes y[i] = start + delta * i, None for an empty one. `operands`: start, limit, delta.

    The length is that of the type. A start that only the run knows is read from memory; a delta must be a constant.
    """
    start, _, delta = operands
    if start is None or delta is None or delta.data is None:
        raise NotLowerable("Range with a run-time delta")
    (length,) = shape_of(y)
    if length == 0:
        return None
    task = KernelTask(node, "movement", target)
    paths = MemoryPaths(task, target)
    wide = in_words(y.dtype, target)
    paths.require(I32 if wide else y.dtype)
    compute = F32 if y.dtype in (F16, BF16) else y.dtype
    counted = I32 if target.explicit_memory else I64  # a chip counts to 2**31, more than its memory holds
    count = task.extent(length)  # as the run has it: less is proven of max(n, m)
    size = min(tiling.elements, -(-count // _ROW) * _ROW) if isinstance(count, int) else tiling.elements
    ramp, passed = paths.tile(counted, (size,)).window((0,), (size,)), paths.tile(counted, (1,))
    ones = paths.tile(counted, (size,)).window((0,), (size,))
    task.expands(ones, 1)
    task.cumsum(ramp, ones, axis=0, exclusive=1)
    task.expands(passed.whole(), 0)
    with task.loop("i", ceildiv(count, size)) as i:
        part = dmin(size, count - size * i)
        e = ElementwiseEmitter(task, (size,), (part,))
        value: Operand = e.apply("TADD", counted, View(ramp.base, ramp.index, (part,)), passed.view(0, shape=(part,)))
        if counted != compute:
            value = e.apply("TCVT", compute, value)
        value = e.apply("TMUL", compute, value, Imm(delta.data.reshape(-1)[0].item()))
        value = e.apply("TADD", compute, value, _start(paths, start, compute, size, part))
        if compute != y.dtype:
            value = e.apply("TCVT", y.dtype, value)

        def place(y: Value, i: Dim = i, part: Dim = part) -> View:
            out = task.operand(y, "out", (count, 2) if wide else (count,), dtype=I32 if wide else None)
            return out.view(size * i + axis(0), *((0,) if wide else ()), shape=(part,))

        store_results(paths, e, [("y", y)], {"y": value}, place)
        task.add(passed.whole(), passed.whole(), size)
    return task.record(work=count)


def _start(paths: MemoryPaths, start: Value, compute: object, size: int, part: Dim) -> Operand:
    """The start for every element of a block: a number, or the one element in memory."""
    if start.data is not None:
        return Imm(start.data.reshape(-1)[0].item())
    if start.dtype != compute:
        raise NotLowerable("Range of halves with a run-time start")
    if in_words(start.dtype, paths.target):
        low = paths.builder.operand(start, shape=(1, 2), dtype=I32).view(0, 0, shape=(part,))
        return Words(*(paths.vector_input(word, (size,), I32) for word in (low, above(low))))
    given = paths.builder.operand(start, shape=(1,)).view(0, shape=(part,))
    return paths.vector_input(given, (size,), start.dtype)
