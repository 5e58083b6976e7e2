"""Resize and Upsample, by one matrix per axis."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.elementwise import cast, widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.errors import InvalidModel
from tensor_types.limits import require_within


def _coordinate(mode: str, out: Array, size: int, made: int, scale: float, roi: tuple[float, float]) -> Array:
    if mode == "asymmetric":
        return out / scale
    if mode == "align_corners":
        return out * ((size - 1) / (made - 1)) if made > 1 else np.zeros_like(out)
    if mode == "pytorch_half_pixel":
        return (out + 0.5) / scale - 0.5 if made > 1 else np.zeros_like(out)
    if mode == "half_pixel_symmetric":
        adjustment = made / (scale * size)
        return size / 2 * (1 - adjustment) + (out + 0.5) / scale - 0.5
    if mode == "tf_half_pixel_for_nn":  # of opsets 11 and 12
        return (out + 0.5) / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if made > 1:
            return start * (size - 1) + out * (end - start) * (size - 1) / (made - 1)
        return np.full_like(out, 0.5 * (start + end) * (size - 1))
    return (out + 0.5) / scale - 0.5


def _nearest(position: Array, mode: str, scale: float) -> Array:
    """`by_direction` is Resize-10's rule."""
    if mode == "floor" or (mode == "by_direction" and scale >= 1):
        return np.floor(position)
    if mode in ("ceil", "by_direction"):
        return np.ceil(position)
    if mode == "round_prefer_ceil":
        return np.floor(position + 0.5)
    return np.ceil(position - 0.5)


def _cubic(t: Array, a: float) -> Array:
    t = np.abs(t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0))


def axis_taps(
    attrs: Attrs, size: int, made: int, scale: float, roi: tuple[float, float]
) -> tuple[Array, Array, Array]:
    """Which elements of an axis make those of its result, and with what weights, both [taps, made]; which results lie
    outside (tf_crop_and_resize)."""
    mode = attrs.get("mode", "nearest")
    transform = attrs.get("coordinate_transformation_mode", "half_pixel")
    position = _coordinate(transform, np.arange(made, dtype=np.float64), size, made, scale, roi)
    outside = (position < 0) | (position > size - 1) if transform == "tf_crop_and_resize" else np.zeros(made, bool)
    if mode == "nearest":
        # Rounding noise must not move an exact tie.
        index = _nearest(np.round(position, 9), attrs.get("nearest_mode", "round_prefer_floor"), scale)
        return np.clip(index, 0, size - 1).astype(np.int64)[None], np.ones((1, made)), outside
    shrink = min(scale, 1.0) if attrs.get("antialias", 0) else 1.0
    reach = int(np.ceil((1 if mode == "linear" else 2) / shrink))
    base = np.floor(position)
    places, weights = [], []
    for offset in range(1 - reach, reach + 1):
        index = base + offset
        t = (position - index) * shrink
        weight = np.maximum(1 - np.abs(t), 0) if mode == "linear" else _cubic(t, attrs.get("cubic_coeff_a", -0.75))
        inside = (index >= 0) & (index <= size - 1)
        if attrs.get("exclude_outside", 0):
            weight = np.where(inside, weight, 0)
        places.append(np.clip(index, 0, size - 1).astype(np.int64))
        weights.append(weight)
    factors = np.array(weights)
    if attrs.get("exclude_outside", 0) or attrs.get("antialias", 0):
        factors /= factors.sum(axis=0)
    return np.array(places), factors, outside


def axis_matrix(attrs: Attrs, size: int, made: int, scale: float, roi: tuple[float, float]) -> tuple[Array, Array]:
    """The matrix [made, size] that resizes one axis, and which outputs lie outside."""
    places, weights, outside = axis_taps(attrs, size, made, scale, roi)
    matrix = np.zeros((made, size))
    np.add.at(matrix, (np.broadcast_to(np.arange(made), places.shape), places), weights)
    return matrix, outside


@implementation("ResizeTaps")
def _resize_taps(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array]:
    """The taps of one axis of a Resize, of a tensor whose shape is operand 0."""
    shape = tuple(int(n) for n in np.asarray(inputs[0]))
    at = attrs["place"]
    axes, made, factors = _targets(shape, get(inputs, 1), get(inputs, 2), {**attrs, "axes": attrs["resized"]})
    size = shape[axes[at]]
    require_within("tensor_bytes", 64 * made[at], "bytes for the weights of a Resize")
    if made[at] and not size:
        raise InvalidModel("an axis of no elements cannot be resized", remedy="check the shapes of the model's inputs")
    places, weights, _outside = axis_taps(attrs, max(size, 1), made[at], factors[at], (0.0, 1.0))
    return places, weights.astype(np.float32)


def _targets(shape: tuple[int, ...], scales: Array | None, sizes: Array | None, attrs: Attrs) -> tuple[
    list[int], list[int], list[float]
]:
    """The axes that a Resize speaks of, the extents of its result there, and the factors."""
    axes = [a % len(shape) for a in attrs.get("axes") or range(len(shape))]
    if scales is not None and np.size(scales):
        factors = [float(s) for s in np.asarray(scales)]
        # As in inference, and in onnxruntime: in f32.
        made = [int(np.float32(shape[a]) * np.float32(f)) for a, f in zip(axes, factors, strict=True)]
    else:
        made = [int(s) for s in np.asarray(sizes)]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        factors = [m / max(shape[a], 1) for a, m in zip(axes, made, strict=True)]
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            made = [int(np.floor(one * shape[a] + 0.5)) for a in axes]
            factors = [one] * len(axes)
    return axes, made, factors


@implementation("Resize")
def _resize(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, roi = np.asarray(inputs[0]), get(inputs, 1)
    axes, made, factors = _targets(array.shape, get(inputs, 2), get(inputs, 3), attrs)
    region = (
        [0.0] * len(axes) + [1.0] * len(axes)
        if roi is None or not np.size(roi)
        else [float(v) for v in np.asarray(roi)]
    )
    result = widened(array).astype(np.float64)
    outside = np.zeros((1,) * array.ndim, bool)
    for n, axis in enumerate(axes):
        size = array.shape[axis]
        if made[n] == size and factors[n] == 1 and attrs.get("coordinate_transformation_mode") != "tf_crop_and_resize":
            continue
        matrix, out = axis_matrix(attrs, size, made[n], factors[n], (region[n], region[n + len(axes)]))
        result = np.moveaxis(np.tensordot(matrix, result, (1, axis)), 0, axis)
        outside = outside | out.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    if outside.any():
        result = np.where(outside, attrs.get("extrapolation_value", 0.0), result)
    if array.dtype.kind in "iu":
        rounds = attrs.get("mode", "nearest") == "nearest" or attrs.get("antialias", 0)
        result = np.rint(result) if rounds else np.trunc(result)
    return cast(result, array.dtype)
