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
from graph_opt.simplify.scopes import replace_nodes
from tensor_types.dims import Dim

_DEPTH = 16
"""Operators between a Range and an index at most."""


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
    parts = _parts(indices)
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
    counted = [_counted(part) for part in parts]
    free = [axis for axis, extent in enumerate(spread) if extent == 1 and axis not in counted]
    axes: list[int] = []
    for part, axis, extent in zip(parts, counted, shape, strict=False):
        if axis is None and extent == 1 and free and part.data is not None and not part.data.any():
            axis = free.pop(0)
        if axis is None or axis >= len(spread) or axis in axes or spread[axis] != extent:
            return None
        axes.append(axis)
    return axes


def _parts(indices: Value) -> list[Value] | None:
    """What is joined along the last axis, each one wide there."""
    join = indices.producer
    if join is None:
        return None
    if join.op != "Concat":
        return [indices] if indices.shape is not None and indices.shape[-1] == 1 else None
    axis = int(join.attrs.get("axis", 0)) % indices.rank  # type: ignore[call-overload]
    parts = [v for v in join.inputs if v is not None]
    thin = all(v.shape is not None and v.shape[-1] == 1 for v in parts)
    return parts if axis == indices.rank - 1 and thin else None


def _counted(value: Value, depth: int = _DEPTH) -> int | None:
    """The axis along which the value is 0, 1, 2 ..., the same along all others; None if it is nothing of the kind."""
    node = value.producer
    if value.shape is None or not depth:
        return None
    if value.data is not None:
        return _counted_data(value.data)
    if node is None or not node.inputs or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    if node.op == "Range":
        start, step = (v.data if v is not None else None for v in (source, node.inputs[2]))
        counts = start is not None and step is not None and start.reshape(-1)[0] == 0 and step.reshape(-1)[0] == 1
        return 0 if counts and value.dtype.is_integer else None
    if node.op not in ("Identity", "Cast", "Expand", "Reshape", "Unsqueeze", "Squeeze"):
        return None
    if source.shape is None or any(not v.dtype.is_integer or v.dtype.bits < 32 for v in (value, source)):
        return None  # fewer bits would count in circles
    axis = _counted(source, depth - 1)
    if axis is None or node.op in ("Identity", "Cast"):
        return axis
    if node.op == "Expand":
        axis += len(value.shape) - len(source.shape)
        return axis if value.shape[axis] == source.shape[axis - len(value.shape) + len(source.shape)] else None
    return _same_among_units(source.shape, value.shape, axis)


def _counted_data(data: np.ndarray) -> int | None:
    if data.dtype.kind not in "iu":
        return None
    for axis, size in enumerate(data.shape):
        ramp = np.arange(size).reshape([-1 if k == axis else 1 for k in range(data.ndim)])
        if size > 1 and (data == ramp).all():
            return axis
    return None


def _same_among_units(source: Sequence[Dim], target: Sequence[Dim], axis: int) -> int | None:
    """Where an axis is after a Reshape that only adds and takes axes of extent 1."""
    kept, found = ([k for k, d in enumerate(shape) if d != 1] for shape in (source, target))
    if [source[k] for k in kept] != [target[k] for k in found] or axis not in kept:
        return None
    return found[kept.index(axis)]
