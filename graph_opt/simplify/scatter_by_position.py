"""ScatterND whose indices are positions: a box of a tensor that others take the place of, not a scatter.

Exporters write x[..., a:b] = y of any rank with indices that count up along each axis. What comes out is x before the
box, y, and x behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.counted_axes import counted, counted_numbers, parts_of
from graph_opt.simplify.scopes import replace_nodes
from tensor_types.dims import Dim


@dataclass(frozen=True)
class ScatterByPosition:
    """ScatterND(x, indices, y) -> y, or Concat(x before, y, x behind) along the one axis that y does not fill.

    1. The parts of the indices are joined along the last axis, one for each leading axis of x. Part k counts along axis
       k of y, or is one number where y has one place there. Nothing is combined.
    2. Along all axes but one, y is as long as x. Along that one its place and length are numbers.
    """

    name: ClassVar[str] = "scatter-by-position"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _joined)


def _joined(rewriter: Rewriter, node: Node) -> Value | None:
    if node.op != "ScatterND" or node.attrs.get("reduction", "none") != "none":
        return None
    x, indices, y = node.inputs
    if x is None or indices is None or y is None or not x.format.is_plain or not y.format.is_plain:
        return None
    if x.shape is None or indices.shape is None or y.shape is None or len(x.shape) != len(y.shape):
        return None
    known = indices.data
    parts: Sequence[Value | np.ndarray] | None = parts_of(indices) if known is None else list(np.moveaxis(known, -1, 0))
    if parts is None or len(parts) > len(x.shape) or indices.shape[:-1] != y.shape[: len(parts)]:
        return None
    starts = [_start(part, axis, y.shape[axis]) for axis, part in enumerate(parts)]
    starts += [0] * (len(x.shape) - len(starts))
    if any(s is None for s in starts):
        return None
    partial = [k for k, s in enumerate(starts) if s != 0 or x.shape[k] != y.shape[k]]
    if not partial:
        return None if rewriter.graph.is_output(node.output) and y.producer is None else y
    axis, start = partial[0], starts[partial[0]]
    whole, length = x.shape[axis], y.shape[axis]
    if len(partial) > 1 or start is None or not isinstance(whole, int) or not isinstance(length, int):
        return None
    if start < 0 or start + length > whole:
        return None
    pieces = [*_cut(rewriter, node, x, axis, (0, start)), y, *_cut(rewriter, node, x, axis, (start + length, whole))]
    return rewriter.insert("Concat", pieces, {"axis": axis}, before=node, name=f"{_own(node)}/concat").output


def _start(part: Value | np.ndarray, axis: int, extent: Dim) -> int | None:
    """Where the positions of an axis begin."""
    numbers = part.data if isinstance(part, Value) else part
    if extent == 1 and numbers is not None and numbers.size and (numbers == numbers.flat[0]).all():
        return int(numbers.flat[0])
    found = counted_numbers(numbers) if numbers is not None else counted(part) if isinstance(part, Value) else None
    return found[1] if found is not None and found[0] == axis else None


def _cut(rewriter: Rewriter, node: Node, x: Value, axis: int, span: tuple[int, int]) -> list[Value]:
    """x from span[0] to span[1] along an axis: whole parts of what it was joined of, or a Slice."""
    start, end = span
    if start == end:
        return []
    join = x.producer
    if join is not None and join.op == "Concat" and int(join.attrs["axis"]) % x.rank == axis:  # type: ignore[arg-type]
        at = 0
        found: list[Value] = []
        for part in join.inputs:
            size = part.shape[axis] if part is not None and part.shape is not None else None
            if part is None or not isinstance(size, int):
                break
            if start <= at and at + size <= end:
                found.append(part)
                start = at + size
            at += size
        if start == end:
            return found
        start = span[0]
    bounds = [rewriter.constant(np.array([n], np.int64), f"{_own(node)}/{w}")
              for n, w in ((start, "start"), (end, "end"), (axis, "axis"))]  # fmt: skip
    return [rewriter.insert("Slice", [x, *bounds], before=node, name=f"{_own(node)}/from{span[0]}").output]


def _own(node: Node) -> str:
    return node.name or node.output.name
