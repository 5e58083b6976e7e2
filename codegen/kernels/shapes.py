"""Shape and Size: dims of the program written out as numbers."""

from __future__ import annotations

from codegen.kernels.memory_paths import MemoryPaths
from codegen.kernels.operands import shape_of
from codegen.kernels.region_task import KernelTask
from codegen.kernels.wide_integers import in_words
from codegen.targets.target import Target
from codegen.tile.ir import Imm
from graph_opt.ir.core import Node, Value
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, floordiv, product
from tensor_types.dtypes import I32

_WORD = 1 << 32


def lower_sizes(node: Node, op: Node, y: Value, target: Target) -> Record | None:
    """The task that writes what a Shape or a Size gives, of the input's type alone; None for nothing."""
    (x,) = op.inputs
    assert x is not None
    sizes: tuple[Dim, ...] = shape_of(x)
    if op.op == "Size":
        sizes = (product(sizes),)
    else:
        start, end = op.attrs.get("start", 0), op.attrs.get("end")
        sizes = sizes[int(start) : None if end is None else int(end)]  # type: ignore[call-overload]
    task = KernelTask(node, "movement", target)
    paths = MemoryPaths(task, target)
    numbers = [task.extent(size) for size in sizes]  # as the run has it: a size may be a quotient by one that is 0
    words = in_words(y.dtype, target)
    if words:  # no size has a sign, so the high word is the rest
        numbers = [word for size in numbers for word in (size, floordiv(size, _WORD))]
    dtype = I32 if words else y.dtype
    if not numbers:
        return None
    out = task.operand(y, "out", (len(numbers),), dtype=dtype if words else None)
    if not paths.explicit:
        for place, size in enumerate(numbers):
            task.expands(out.view(place, shape=()), Imm(size))
        return task.record()
    # Stores of a chip move blocks: the numbers come together in a tile.
    paths.require(dtype)
    held = paths.tile(dtype, (len(numbers),))
    for place, size in enumerate(numbers):
        task.expands(held.view(place, shape=()), Imm(size))
    task.store(out.whole(), held.window((0,), (len(numbers),)))
    return task.record()
