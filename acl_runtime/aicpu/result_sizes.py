"""Bytes that an operator would take, told from its inputs and attributes before it takes them.

Only operators that make much of little are listed: the results of others are of the size of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tensor_types.errors import InvalidModel, ResourceLimit
from tensor_types.limits import require_within

_Count = Callable[[Sequence[Any], Mapping[str, Any]], int]


def require_room(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """ResourceLimit if the operator would take more than the budget `tensor_bytes`; InvalidModel for sizes that are
    no numbers, or negative."""
    count = _COUNTS.get(op)
    if count is None:
        return
    try:
        elements = count(inputs, attrs)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise InvalidModel(f"a size is no number: {error}", where={"op": op}, remedy="check the sizes") from error
    first = next((np.asarray(i) for i in inputs if isinstance(i, np.ndarray | np.generic)), None)
    width = 8 if first is None or first.dtype.hasobject else max(first.dtype.itemsize, 1)
    try:
        require_within("tensor_bytes", elements * width, "bytes of one result", "use smaller sizes")
    except ResourceLimit as error:
        error.where.setdefault("op", op)
        raise


def _numbers(value: Any) -> list[int]:
    return [int(n) for n in np.asarray(value).reshape(-1).tolist()]


def _expand(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return max(np.size(inputs[0]), 1) * prod(max(n, 1) for n in _numbers(inputs[1]))


def _tile(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) * prod(_numbers(inputs[1]))


def _range(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    start, limit, delta = (float(np.asarray(v).reshape(-1)[0]) for v in inputs[:3])
    return int(max((limit - start) / delta, 0)) if delta else 0


def _one_hot(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) * max(int(np.asarray(inputs[1]).reshape(-1)[0]), 0)


def _pad(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    array, pads = np.asarray(inputs[0]), _numbers(inputs[1])
    axes = range(array.ndim) if len(inputs) < 4 or inputs[3] is None else _numbers(inputs[3])
    sizes = list(array.shape)
    for k, axis in enumerate(axes):
        sizes[axis] = max(sizes[axis] + pads[k] + pads[k + len(pads) // 2], 0)
    return prod(sizes)


def _resize(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    given = [np.asarray(v, np.float64) for v in inputs[2:4] if v is not None and np.size(v)]
    if not given:
        return 0
    scales = len(inputs) > 2 and inputs[2] is not None and np.size(inputs[2])
    grown = float(np.prod(np.maximum(given[0], 0)))
    rest = np.size(inputs[0])
    return int(min(grown * rest if scales else grown * max(rest, 1) ** (given[0].size < np.ndim(inputs[0])), 1e30))


def _windows(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Elements of all windows of a padded image."""
    array = np.asarray(inputs[0])
    spatial = array.shape[2:]
    kernel = [int(k) for k in attrs.get("kernel_shape") or [1] * len(spatial)]
    pads = [int(p) for p in attrs.get("pads") or [0] * (2 * len(spatial))]
    strides = [max(int(s), 1) for s in attrs.get("strides") or [1] * len(spatial)]
    padded = [n + pads[k] + pads[k + len(spatial)] for k, n in enumerate(spatial)]
    out = [max(n // s, 1) for n, s in zip(padded, strides, strict=False)]
    return prod(array.shape[:2]) * max(prod(max(n, 1) for n in padded), prod(out) * prod(kernel))


def _shape_attribute(_: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return prod(int(n) for n in attrs.get("shape") or ())


def _first_as_shape(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    sizes = _numbers(inputs[0])
    if any(n < 0 for n in sizes):
        raise ValueError(f"{min(sizes)} is negative")
    return prod(sizes)


_COUNTS: dict[str, _Count] = {
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Resize": _resize,
    "ConstantOfShape": _first_as_shape,
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), _first_as_shape),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _shape_attribute),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool", "Conv", "ConvInteger", "QLinearConv"), _windows),
}
