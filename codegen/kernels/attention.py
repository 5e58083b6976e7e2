"""Scaled dot-product attention with online softmax: scores never leave the core.

A grid index is one head and a chunk of query rows. Keys come in blocks. With few keys there is one block and a plain
softmax; else running maximum, sum and output are carried over the blocks. With a cache, copies write the present keys
and values once, and the attention reads those.
"""

from __future__ import annotations

from codegen.kernels.attention_base import AttentionTiling
from codegen.kernels.attention_chip import ChipKernel
from codegen.kernels.attention_host import HostKernel
from codegen.kernels.attention_problem import Head, problem_of
from codegen.kernels.movement_copy import MovementTiling, Walk, emit_copy, movement_tilings, program_dim
from codegen.kernels.operands import NotLowerable
from codegen.kernels.region_task import KernelTask
from codegen.kernels.tiling import Tiling, first_fit
from codegen.targets.target import Target
from graph_opt.ir.core import Node
from graph_opt.plan.records import Record
from tensor_types.dims import Dim, product
from tensor_types.dtypes import BF16, F16, F32

_LENGTH = 2
"""Position of the length among the extents of a head."""


def lower_attention(node: Node, target: Target, tiling: Tiling | None = None) -> list[Record]:
    """Tasks of a Fused node of family attention: copies into its caches, and the attention that reads them."""
    p = problem_of(node)
    if p.q.value.dtype not in (F32, F16, BF16) or p.k.length == 0:
        raise NotLowerable("dtype or no keys")
    records: list[Record] = []
    for cache in p.caches:
        parts: list[tuple[Head, Dim]] = [(cache.fresh, 0 if cache.past is None else cache.past.length)]
        if cache.past is not None:
            parts.insert(0, (cache.past, 0))
        for part, start in parts:
            if 0 not in part.extents:
                records += _copy(node, target, part, cache.present, start)
    if 0 in p.out.extents:
        return records
    kernel: type[HostKernel] | type[ChipKernel] = ChipKernel if target.explicit_memory else HostKernel

    def emit(chosen: AttentionTiling) -> list[Record]:
        task = KernelTask(node, "attention", target)
        kernel(task, target, p, chosen).emit()
        work = 2 * p.q.batch * p.q.heads * p.q.length * p.k.length * (p.q.width + p.v.width)
        return [task.record(work)]

    return [*records, *first_fit(kernel.tilings(target, p), emit, tiling)]


def _copy(node: Node, target: Target, source: Head, present: Head, start: Dim) -> list[Record]:
    """A task that writes keys or values to positions `start` .. of a cache."""
    # Loops in the order of the cache, so that what is written is one run per head.
    reads = [Walk(size, loop) for loop, size in enumerate(source.extents)]
    writes = [Walk(size, loop, start if loop == _LENGTH else 0) for loop, size in enumerate(present.extents)]

    def emit(chosen: MovementTiling) -> list[Record]:
        task = KernelTask(node, "attention", target)
        emit_copy(task, chosen, source.value, present.value, source.extents, source.in_order(reads),
                  present.in_order(writes))  # fmt: skip
        return [task.record(work=product(program_dim(task, size) for size in source.extents))]

    return first_fit(movement_tilings(), emit)
