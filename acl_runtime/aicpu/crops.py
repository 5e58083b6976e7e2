"""com.microsoft: parts of images at one size."""

from __future__ import annotations

import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, implementation
from tensor_types.errors import InvalidModel


@implementation("com.microsoft::CropAndResize")
def _crop_and_resize(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    """Boxes (y1, x1, y2, x2) in shares of the last index of an axis; what lies outside has one value."""
    images, boxes = np.asarray(inputs[0]), np.asarray(inputs[1]).astype(np.float32)
    which, size = np.asarray(inputs[2]).reshape(-1), [int(n) for n in np.asarray(inputs[3]).reshape(-1)]
    mode, outside = str(attrs.get("mode", "bilinear")), attrs.get("extrapolation_value", 0.0)
    if which.size and not (0 <= which.min() and which.max() < len(images)):
        raise InvalidModel(f"a box is of image {which.max()}, there are {len(images)}",
                           remedy="give batch_indices of images")  # fmt: skip
    rows, columns = (_places(boxes[:, a], boxes[:, a + 2], images.shape[2 + a], size[a]) for a in (0, 1))
    chosen = images[which]
    box = np.arange(len(boxes))[:, None, None]

    def at(y: Array, x: Array) -> Array:  # [boxes, rows, columns, channels]
        last = [n - 1 for n in images.shape[2:]]
        return chosen[box, :, np.clip(y, 0, last[0])[:, :, None], np.clip(x, 0, last[1])[:, None, :]]

    if mode == "nearest":
        found = at(np.rint(rows).astype(np.int64), np.rint(columns).astype(np.int64))
    elif mode == "bilinear":
        top, left = np.floor(rows), np.floor(columns)
        down, right = (rows - top)[:, :, None, None], (columns - left)[:, None, :, None]
        y, x = top.astype(np.int64), left.astype(np.int64)
        above = at(y, x) * (1 - right) + at(y, x + 1) * right
        below = at(y + 1, x) * (1 - right) + at(y + 1, x + 1) * right
        found = above * (1 - down) + below * down
    else:
        raise InvalidModel(f"the mode {mode} is not known", remedy="export with bilinear or nearest")
    inside = _inside(rows, images.shape[2])[:, :, None] & _inside(columns, images.shape[3])[:, None, :]
    return np.where(inside[..., None], found, outside).transpose(0, 3, 1, 2).astype(images.dtype)


def _places(first: Array, last: Array, extent: int, count: int) -> Array:
    """Where the samples of each box lie along an axis, [boxes, count] of f32."""
    whole = np.float32(extent - 1)
    if count < 2:
        return (np.float32(0.5) * (first + last) * whole)[:, None].repeat(count, 1)
    step = (last - first) * whole / np.float32(count - 1)
    return first[:, None] * whole + np.arange(count, dtype=np.float32) * step[:, None]


def _inside(places: Array, extent: int) -> Array:
    return (places >= 0) & (places <= extent - 1)
