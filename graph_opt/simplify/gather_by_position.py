"""GatherND whose indices are positions: a tensor seen along other axes, not a gather.

Exporters write x[b, k] of a mask with b and k counting up along axes of the result, so that every element moves through
index arithmetic. What is read is x itself, its axes put where the positions count, repeated along the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.counted_axes import counted_from_0, parts_of
from graph_opt.simplify.scopes import replace_nodes
from tensor_types.dims import Dim


@dataclass(frozen=True)
class GatherByPosition:
    """GatherND(x, indices) -> Expand(Unsqueeze(Transpose(x))).

    1. The parts of the indices are joined along the last axis, one for each leading axis of x, without batch axes.
    2. Each part counts 0, 1, 2 ... along one axis of the result, as long as that axis of x, each along another.
    """

    name: ClassVar[str] = "gather-by-position"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _seen)


def _seen(rewriter: Rewriter, node: Node) -> Value | None:
    if node.op != "GatherND" or node.attrs.get("batch_dims", 0):
        return None
    x, indices = node.input(0), node.input(1)
    if x is None or indices is None or x.shape is None or indices.shape is None or not x.format.is_plain:
        return None
    parts = parts_of(indices)
    spread = indices.shape[:-1]
    if parts is None or len(parts) > len(x.shape):
        return None
    axes = _axes(parts, x.shape, spread)
    if axes is None:
        return None
    tail = list(range(len(parts), len(x.shape)))
    perm = [*sorted(range(len(axes)), key=lambda k: axes[k]), *tail]
    added = [axis for axis in range(len(spread)) if axis not in axes]

    own = node.name or node.output.name

    def insert(op: str, inputs: Sequence[Value], attrs: Mapping[str, AttrValue] | None = None) -> Value:
        return rewriter.insert(op, inputs, attrs, before=node, name=f"{own}/{op.lower()}").output

    result = x if perm == sorted(perm) else insert("Transpose", [x], {"perm": tuple(perm)})
    if added:
        at = rewriter.constant(np.array(added, np.int64), f"{own}/axes")
        result = insert("Unsqueeze", [result, at])
        target = insert("Shape", [indices], {"start": 0, "end": -1})
        if tail:
            ones = rewriter.constant(np.ones(len(tail), np.int64), f"{own}/ones")
            target = insert("Concat", [target, ones], {"axis": 0})
        result = insert("Expand", [result, target])
    return None if result is x and rewriter.graph.is_output(node.output) else result


def _axes(parts: Sequence[Value], shape: Sequence[Dim], spread: Sequence[Dim]) -> list[int] | None:
    """The axis of the result along which each part counts; a part of zeros into an axis of one takes any of one."""
    counted = [counted_from_0(part) for part in parts]
    free = [axis for axis, extent in enumerate(spread) if extent == 1 and axis not in counted]
    axes: list[int] = []
    for part, axis, extent in zip(parts, counted, shape, strict=False):
        if axis is None and extent == 1 and free and part.data is not None and not part.data.any():
            axis = free.pop(0)
        if axis is None or axis >= len(spread) or axis in axes or spread[axis] != extent:
            return None
        axes.append(axis)
    return axes
