"""Operators that move, select or describe elements without computing on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import from_onnx
from tensor_types.errors import InvalidModel


def integers(array: Any) -> list[int]:
    """A small integer tensor as a list."""
    return [int(v) for v in np.asarray(array).reshape(-1)]


def axes_of(inputs: Inputs, attrs: Attrs, index: int) -> list[int] | None:
    """The axes that an operator takes as input `index`, or in older form as attribute."""
    given = get(inputs, index)
    return integers(given) if given is not None else (integers(attrs["axes"]) if "axes" in attrs else None)


@implementation("Identity")
def _identity(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return inputs[0]


@implementation("Shape")
def _shape(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    shape = np.array(np.shape(inputs[0]), np.int64)
    return shape[attrs.get("start", 0) : attrs.get("end")]


@implementation("Size")
def _size(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.array(np.size(inputs[0]), np.int64)


@implementation("Reshape")
def _reshape(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, wanted = np.asarray(inputs[0]), integers(inputs[1])
    if not attrs.get("allowzero", 0):
        wanted = [array.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    return array.reshape(wanted)


@implementation("Flatten")
def _flatten(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, axis = np.asarray(inputs[0]), attrs.get("axis", 1)
    axis += array.ndim if axis < 0 else 0
    return array.reshape(int(np.prod(array.shape[:axis], dtype=np.int64)), -1 if array.size else 0)


@implementation("Squeeze")
def _squeeze(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    axes = axes_of(inputs, attrs, 1)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


@implementation("Unsqueeze")
def _unsqueeze(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.expand_dims(inputs[0], tuple(axes_of(inputs, attrs, 1) or ()))


@implementation("Transpose")
def _transpose(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.transpose(inputs[0], attrs.get("perm"))


@implementation("Concat")
def _concat(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.concatenate(inputs, attrs["axis"])


@implementation("Split")
def _split(inputs: Inputs, attrs: Attrs, n_outputs: int) -> tuple[Array, ...]:
    array, axis, sizes = np.asarray(inputs[0]), attrs.get("axis", 0), get(inputs, 1)
    if sizes is None:
        parts = attrs.get("num_outputs", n_outputs)
        each = -(-array.shape[axis] // parts)
        ends = [min(each * (i + 1), array.shape[axis]) for i in range(parts - 1)]
    else:
        ends = list(np.cumsum(integers(sizes))[:-1])
    return tuple(np.split(array, ends, axis))


@implementation("Slice")
def _slice(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    starts, ends = integers(inputs[1]), integers(inputs[2])
    given_axes, given_steps = get(inputs, 3), get(inputs, 4)
    axes = range(len(starts)) if given_axes is None else integers(given_axes)
    steps = [1] * len(starts) if given_steps is None else integers(given_steps)
    index: list[slice] = [slice(None)] * array.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = array.shape[axis]
        if step < 0 and end in (2**31 - 1, 2**63 - 1):
            end = -size - 1  # onnxruntime reads it as "to the end" in either direction
        # ONNX brings both into the axis, where numpy takes nothing of a slice that begins outside.
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, last = (min(max(at + size if at < 0 else at, low), high) for at in (start, end))
        index[axis] = slice(max(first, 0), None if last < 0 else last, step)
    return array[tuple(index)]


@implementation("Pad")
def _pad(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, pads = np.asarray(inputs[0]), integers(inputs[1])
    value, axes = get(inputs, 2), get(inputs, 3)
    chosen = list(range(array.ndim)) if axes is None else [a % array.ndim for a in integers(axes)]
    widths = [[0, 0] for _ in range(array.ndim)]
    for i, axis in enumerate(chosen):
        widths[axis] = [pads[i], pads[i + len(chosen)]]
    cut = tuple(slice(max(-b, 0), size - max(-e, 0)) for (b, e), size in zip(widths, array.shape, strict=True))
    array = array[cut]
    grown = [(max(b, 0), max(e, 0)) for b, e in widths]
    mode: Any = attrs.get("mode", "constant")
    if mode == "constant":
        fill = np.zeros((), array.dtype) if value is None else np.asarray(value).reshape(())
        result = np.full([b + s + e for (b, e), s in zip(grown, array.shape, strict=True)], fill, array.dtype)
        result[tuple(slice(b, b + s) for (b, _e), s in zip(grown, array.shape, strict=True))] = array
        return result
    return np.pad(array, grown, mode)


@implementation("Expand")
def _expand(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, tuple(integers(inputs[1]))))


@implementation("Tile")
def _tile(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.tile(inputs[0], integers(inputs[1]))


@implementation("ConstantOfShape")
def _constant_of_shape(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    value = np.asarray(attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    return np.full(integers(inputs[0]), value[0], value.dtype)


@implementation("Range")
def _range(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    start, limit, delta = (np.asarray(v).reshape(()) for v in inputs)
    count = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    if start.dtype.kind in "iu":
        first, step = int(start), int(delta)
        count = max(0, -(-(int(limit) - first) // step))
        return (first + step * np.arange(count, dtype=np.int64)).astype(start.dtype)
    return (start + delta * np.arange(count)).astype(start.dtype)


def checked_index(index: Any, size: int) -> Array:
    """Indices with negative ones counted from the end. InvalidModel if one is out of range."""
    index = np.asarray(index).astype(np.int64)
    if index.size and (index.min() < -size or index.max() >= size):
        raise InvalidModel(
            f"an index is out of range: {int(index.min())}..{int(index.max())} into {size}",
            remedy="check the values of the model's inputs",
        )
    return np.where(index < 0, index + size, index)


@implementation("Gather")
def _gather(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, axis = np.asarray(inputs[0]), attrs.get("axis", 0)
    return np.take(array, checked_index(inputs[1], array.shape[axis]), axis)


@implementation("GatherElements")
def _gather_elements(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, axis = np.asarray(inputs[0]), attrs.get("axis", 0)
    index = checked_index(inputs[1], array.shape[axis])
    cut = tuple(slice(None) if i == axis % array.ndim else slice(n) for i, n in enumerate(index.shape))
    return np.take_along_axis(array[cut], index, axis)


def _nd_index(indices: Array, shape: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(checked_index(indices[..., i], shape[i]) for i in range(indices.shape[-1]))


@implementation("GatherND")
def _gather_nd(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, indices, batch = np.asarray(inputs[0]), np.asarray(inputs[1]), attrs.get("batch_dims", 0)
    if not batch:
        return np.asarray(array[_nd_index(indices, array.shape)])
    lead = array.shape[:batch]
    flat, flat_index = array.reshape(-1, *array.shape[batch:]), indices.reshape(-1, *indices.shape[batch:])
    parts = [a[_nd_index(i, a.shape)] for a, i in zip(flat, flat_index, strict=True)]
    return np.stack(parts).reshape(*lead, *parts[0].shape) if parts else np.empty((0,), array.dtype)


_COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(array: Array, where: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = np.array(array)
    if reduction == "none":
        result[where] = updates
    else:
        _COMBINE[reduction].at(result, where, updates)
    return result


@implementation("ScatterND")
def _scatter_nd(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, indices, updates = (np.asarray(v) for v in inputs)
    return _scatter(array, _nd_index(indices, array.shape), updates, attrs.get("reduction", "none"))


@implementation("ScatterElements", "Scatter")
def _scatter_elements(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, axis = np.asarray(inputs[0]), attrs.get("axis", 0)
    index = checked_index(inputs[1], array.shape[axis])
    where = list(np.indices(index.shape))
    where[axis] = index
    return _scatter(array, tuple(where), np.asarray(inputs[2]), attrs.get("reduction", "none"))


@implementation("TensorScatter")
def _tensor_scatter(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    past, update, start = np.array(inputs[0]), np.asarray(inputs[1]), get(inputs, 2)
    axis = attrs.get("axis", -2) % past.ndim
    length, count = past.shape[axis], update.shape[axis]
    starts = np.zeros(past.shape[0], np.int64) if start is None else np.asarray(start)
    for batch in range(past.shape[0]):
        at = int(starts[batch]) + np.arange(count)
        at = at % length if attrs.get("mode", "linear") == "circular" else checked_index(at, length)
        target = np.moveaxis(past[batch], axis - 1, 0)
        target[at] = np.moveaxis(update[batch], axis - 1, 0)
    return past


@implementation("NonZero")
def _non_zero(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.atleast_1d(np.asarray(inputs[0]))
    return np.array(np.nonzero(array), np.int64).reshape(array.ndim, -1)


@implementation("Compress")
def _compress(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    condition = np.asarray(inputs[1], np.bool_).reshape(-1)
    array = np.asarray(inputs[0])
    if "axis" not in attrs:
        return array.reshape(-1)[: len(condition)][condition[: array.size]]
    return np.compress(condition[: array.shape[attrs["axis"]]], array, attrs["axis"])


@implementation("OneHot")
def _one_hot(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    indices, depth, values = np.asarray(inputs[0]), int(np.asarray(inputs[1]).reshape(-1)[0]), np.asarray(inputs[2])
    axis = attrs.get("axis", -1)
    index = indices.astype(np.int64)
    index = np.where(index < 0, index + depth, index)
    axis += index.ndim + 1 if axis < 0 else 0
    row = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(index.ndim + 1)])
    return np.where(np.expand_dims(index, axis) == row, values[1], values[0]).astype(values.dtype)


@implementation("EyeLike")
def _eye_like(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    kind = from_onnx(attrs["dtype"]).numpy if "dtype" in attrs else array.dtype
    return np.eye(array.shape[0], array.shape[1], attrs.get("k", 0)).astype(kind)


@implementation("Trilu")
def _trilu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    k = get(inputs, 1)
    shift = 0 if k is None else int(np.asarray(k).reshape(-1)[0])
    array = np.asarray(inputs[0])
    rows, columns = np.indices(array.shape[-2:])
    keep = columns - rows >= shift if attrs.get("upper", 1) else columns - rows <= shift
    return np.where(keep, array, np.zeros((), array.dtype))


@implementation("ReverseSequence")
def _reverse_sequence(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, lengths = np.array(inputs[0]), integers(inputs[1])
    batch, time = attrs.get("batch_axis", 1), attrs.get("time_axis", 0)
    view = np.moveaxis(array, (batch, time), (0, 1))
    if any(not 0 <= length <= array.shape[time] for length in lengths):
        raise InvalidModel("a sequence is longer than time", remedy="check the values of the model's inputs")
    for i, length in enumerate(lengths):
        view[i, :length] = view[i, :length][::-1].copy()
    return array


@implementation("DepthToSpace")
def _depth_to_space(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, b = np.asarray(inputs[0]), attrs["blocksize"]
    n, c, h, w = array.shape
    if attrs.get("mode", "DCR") == "DCR":
        parts = array.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = array.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // (b * b), h * b, w * b)


@implementation("SpaceToDepth")
def _space_to_depth(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, b = np.asarray(inputs[0]), attrs["blocksize"]
    n, c, h, w = array.shape
    parts = array.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(n, c * b * b, h // b, w // b)


@implementation("Unique")
def _unique(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    array, axis = np.asarray(inputs[0]), attrs.get("axis")
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not attrs.get("sorted", 1):
        order = np.argsort(first)
        rank = np.argsort(order)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
