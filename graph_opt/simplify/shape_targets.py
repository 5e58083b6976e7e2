"""Target shapes as constants: what 0 and -1 can say of a symbolic shape."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_types.dims import Dim, floordiv, product


def reshape_target(source: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[int, ...] | None:
    """A Reshape target (allowzero 0) that gives `wanted` from `source`; None when numbers, 0 and one -1 do not suffice.

    0 stands for the extent of the source at the same place, -1 for what remains.
    """
    target: list[int] = []
    for axis, extent in enumerate(wanted):
        if isinstance(extent, int) and extent > 0:
            target.append(extent)
        elif axis < len(source) and source[axis] == extent:
            target.append(0)
        else:
            target.append(-1)
    if target.count(-1) > 1:
        return None
    if -1 in target:
        hole = target.index(-1)
        if wanted[hole] == 0:
            return None
        left, right = list(source), [d for i, d in enumerate(wanted) if i != hole]
        for extent in list(right):
            if extent in left:
                left.remove(extent)
                right.remove(extent)
        if 0 in right or floordiv(product(left), product(right)) != wanted[hole]:
            return None
    return tuple(target)


def expand_target(source: Sequence[Dim], wanted: Sequence[Dim]) -> tuple[int, ...] | None:
    """An Expand target that gives `wanted` from `source`, where 1 keeps an extent; None when numbers do not suffice."""
    target: list[int] = []
    offset = len(wanted) - len(source)
    for axis, extent in enumerate(wanted):
        own = source[axis - offset] if axis >= offset else 1
        if isinstance(extent, int):
            target.append(extent)
        elif own == extent:
            target.append(1)
        else:
            return None
    return tuple(target)
