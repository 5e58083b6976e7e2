"""TopK: rows are looked through once for what may be among the best, and only that is sorted."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.elementwise import widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.errors import InvalidModel

_SHORT = 256
"""Rows below are sorted as a whole, all at once."""


@implementation("TopK")
def _top_k(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    array, k = np.asarray(inputs[0]), int(np.asarray(inputs[1]).reshape(-1)[0])
    axis, largest = attrs.get("axis", -1), bool(attrs.get("largest", 1))
    length = array.shape[axis]
    if not 0 <= k <= length:
        raise InvalidModel(f"{k} of {length} elements are wanted", remedy="check the values of the model's inputs")
    keys = np.moveaxis(widened(array), axis, -1)
    if length < _SHORT or 4 * k > length:
        order = _sorted(keys, largest)[..., :k]
    else:
        rows = np.ascontiguousarray(keys).reshape(-1, length)
        order = np.array([_best(row, k, largest) for row in rows], np.int64).reshape(*keys.shape[:-1], k)
    order = np.moveaxis(order.astype(np.int64), -1, axis)
    return np.take_along_axis(array, order, axis), order


def _sorted(keys: Array, largest: bool) -> Array:
    """The order of rows, best first, the lower index first among equals; NaN is larger than every number."""
    if not largest:
        return np.argsort(keys, -1, kind="stable")
    # Stable ascending order of the reversed row, read backwards.
    return keys.shape[-1] - 1 - np.flip(np.argsort(np.flip(keys, -1), -1, kind="stable"), -1)


def _best(row: Array, k: int, largest: bool) -> Array:
    """The first k of a row, in order.

    Of the best elements of 2*k pieces, the k-th tells how good an element must be: k elements are at least so.
    """
    if not k:
        return np.zeros(0, np.int64)
    width = len(row) // (2 * k)
    pieces = row[: 2 * k * width].reshape(2 * k, width)
    ends = pieces.max(1) if largest else pieces.min(1)
    bound = np.partition(ends, k if largest else k - 1)[k if largest else k - 1]
    found = np.flatnonzero(row >= bound if largest else row <= bound)
    if len(found) < k or (row.dtype.kind == "f" and np.isnan(row).any()):
        return _sorted(row, largest)[:k]
    return found[_sorted(row[found], largest)[:k]]
