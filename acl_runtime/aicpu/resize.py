"""Resize and Upsample, by one matrix per axis."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.elementwise import cast, widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation


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


def axis_matrix(attrs: Attrs, size: int, made: int, scale: float, roi: tuple[float, float]) -> tuple[Array, Array]:
    """The matrix [made, size] that resizes one axis, and which outputs lie outside (tf_crop_and_resize)."""
    mode = attrs.get("mode", "nearest")
    transform = attrs.get("coordinate_transformation_mode", "half_pixel")
    position = _coordinate(transform, np.arange(made, dtype=np.float64), size, made, scale, roi)
    outside = (position < 0) | (position > size - 1) if transform == "tf_crop_and_resize" else np.zeros(made, bool)
    matrix = np.zeros((made, size))
    rows = np.arange(made)
    if mode == "nearest":
        # Rounding noise must not move an exact tie.
        index = _nearest(np.round(position, 9), attrs.get("nearest_mode", "round_prefer_floor"), scale)
        matrix[rows, np.clip(index, 0, size - 1).astype(int)] = 1
        return matrix, outside
    shrink = min(scale, 1.0) if attrs.get("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    base = np.floor(position)
    for offset in range(-int(np.ceil(reach)), int(np.ceil(reach)) + 1):
        index = base + offset
        t = (position - index) * shrink
        weight = np.maximum(1 - np.abs(t), 0) if mode == "linear" else _cubic(t, attrs.get("cubic_coeff_a", -0.75))
        inside = (index >= 0) & (index <= size - 1)
        if attrs.get("exclude_outside", 0):
            weight = np.where(inside, weight, 0)
        np.add.at(matrix, (rows, np.clip(index, 0, size - 1).astype(int)), weight)
    if attrs.get("exclude_outside", 0) or attrs.get("antialias", 0):
        matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix, outside


@implementation("Resize")
def _resize(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, roi, scales, sizes = np.asarray(inputs[0]), get(inputs, 1), get(inputs, 2), get(inputs, 3)
    axes = [a % array.ndim for a in attrs.get("axes") or range(array.ndim)]
    if scales is not None and np.size(scales):
        factors = [float(s) for s in np.asarray(scales)]
        # As in inference, and in onnxruntime: in f32.
        made = [int(np.float32(array.shape[a]) * np.float32(f)) for a, f in zip(axes, factors, strict=True)]
    else:
        made = [int(s) for s in np.asarray(sizes)]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        factors = [m / array.shape[a] for a, m in zip(axes, made, strict=True)]
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            made = [int(np.floor(one * array.shape[a] + 0.5)) for a in axes]
            factors = [one] * len(axes)
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
