"""Integer tensors that count along one axis of theirs, as exporters write positions: Range, Reshape, Expand, Concat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_opt.ir.core import Value
from tensor_types.dims import Dim

_DEPTH = 16
"""Operators between a Range and an index at most."""


def parts_of(indices: Value) -> list[Value] | None:
    """What is joined along the last axis, each one wide there."""
    join = indices.producer
    if join is None:
        return None
    if join.op != "Concat":
        return [indices] if indices.shape is not None and indices.shape[-1] == 1 else None
    axis = int(join.attrs.get("axis", 0)) % indices.rank  # type: ignore[arg-type]
    parts = [v for v in join.inputs if v is not None]
    thin = all(v.shape is not None and v.shape[-1] == 1 for v in parts)
    return parts if axis == indices.rank - 1 and thin else None


def counted_from_0(value: Value) -> int | None:
    """The axis along which the value is 0, 1, 2 ..., the same along all others; None if it is nothing of the kind."""
    found = counted(value)
    return found[0] if found is not None and found[1] == 0 else None


def counted(value: Value, depth: int = _DEPTH) -> tuple[int, int] | None:
    """An axis and a start: the value is start, start + 1 ... along the axis, the same along all others."""
    node = value.producer
    if value.shape is None or not depth:
        return None
    if value.data is not None:
        return counted_numbers(value.data)
    if node is None or not node.inputs or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    if node.op == "Range":
        first, step = (v.data if v is not None else None for v in (source, node.inputs[2]))
        if first is None or step is None or step.reshape(-1)[0] != 1 or not value.dtype.is_integer:
            return None
        return 0, int(first.reshape(-1)[0])
    if node.op not in ("Identity", "Cast", "Expand", "Reshape", "Unsqueeze", "Squeeze"):
        return None
    if source.shape is None or any(not v.dtype.is_integer or v.dtype.bits < 32 for v in (value, source)):
        return None  # fewer bits would count in circles
    found = counted(source, depth - 1)
    if found is None or node.op in ("Identity", "Cast"):
        return found
    axis, start = found
    if node.op == "Expand":
        axis += len(value.shape) - len(source.shape)
        kept = value.shape[axis] == source.shape[axis - len(value.shape) + len(source.shape)]
        return (axis, start) if kept else None
    moved = _same_among_units(source.shape, value.shape, axis)
    return None if moved is None else (moved, start)


def counted_numbers(data: np.ndarray) -> tuple[int, int] | None:
    """As `counted`, of the numbers themselves."""
    if data.dtype.kind not in "iu" or not data.size:
        return None
    start = int(data.flat[0])
    for axis, size in enumerate(data.shape):
        ramp = start + np.arange(size).reshape([-1 if k == axis else 1 for k in range(data.ndim)])
        if size > 1 and (data == ramp).all():
            return axis, start
    return None


def _same_among_units(source: Sequence[Dim], target: Sequence[Dim], axis: int) -> int | None:
    """Where an axis is after a Reshape that only adds and takes axes of extent 1."""
    kept, found = ([k for k, d in enumerate(shape) if d != 1] for shape in (source, target))
    if [source[k] for k in kept] != [target[k] for k in found] or axis not in kept:
        return None
    return found[kept.index(axis)]
