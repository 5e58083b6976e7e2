"""Detection and sampling: boxes, regions of interest, grids, deformed convolution, CenterCropPad."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import widened
from acl_runtime.aicpu.reductions import wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from acl_runtime.aicpu.shape_ops import integers


@implementation("NonMaxSuppression")
def _non_max_suppression(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    boxes, scores, limit, overlap, least = (get(inputs, i) for i in range(5))
    most = 0 if limit is None else max(int(np.asarray(limit).reshape(-1)[0]), 0)
    return selected(kept_boxes(boxes, scores, most, overlap, least, bool(attrs.get("center_point_box", 0))))


@implementation("SelectBoxes")
def _select_boxes(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    boxes, scores, overlap, least = (get(inputs, i) for i in range(4))
    return kept_boxes(boxes, scores, attrs["most"], overlap, least, bool(attrs.get("center", 0)))


@implementation("SelectedBoxes")
def _selected_boxes(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return selected(np.asarray(inputs[0]))


def selected(chosen: Array) -> Array:
    """Rows (image, class, box) i64 of the numbers of boxes [images, classes, most]; -1 stands for none."""
    images, kinds, places = np.nonzero(chosen >= 0)
    return np.stack([images, kinds, chosen[images, kinds, places]], 1)


def kept_boxes(boxes: Any, scores: Any, most: int, overlap: Any, least: Any, center: bool) -> Array:
    """For each class of each image the boxes that suppression keeps, best first, then -1: i64 [.., .., min(most, n)].

    Overlaps are compared in f32, as onnxruntime does.
    """
    boxes, scores = np.asarray(boxes, np.float32), np.asarray(scores, np.float32)
    threshold = np.float32(0 if overlap is None else np.asarray(overlap).reshape(-1)[0])
    if center:
        centre, half = boxes[..., :2], boxes[..., 2:] * np.float32(0.5)
        low, high = centre - half, centre + half
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    area = np.prod(high - low, axis=-1)
    above = np.ones(scores.shape, bool) if least is None else scores > np.asarray(least).reshape(-1)[0]
    result = np.full((*scores.shape[:2], min(most, scores.shape[2])), -1, np.int64)
    for batch, kind in zip(*np.nonzero(above.any(-1)), strict=True):
        order = np.nonzero(above[batch, kind])[0]
        order = order[np.argsort(-scores[batch, kind, order], kind="stable")]
        for place in range(result.shape[2]):
            if not len(order):
                break
            best, order = order[0], order[1:]
            result[batch, kind, place] = best
            sides = np.minimum(high[batch, best], high[batch, order]) - np.maximum(low[batch, best], low[batch, order])
            common = np.prod(np.maximum(sides, 0), axis=-1)
            order = order[~(common / (area[batch, best] + area[batch, order] - common) > threshold)]
    return result


def _bilinear(image: Array, y: Array, x: Array) -> Array:
    """image [C, H, W] at in-range positions y, x of any shape: [C, ...]."""
    height, width = image.shape[1:]
    y0, x0 = np.minimum(np.floor(y).astype(int), height - 1), np.minimum(np.floor(x).astype(int), width - 1)
    y1, x1 = np.minimum(y0 + 1, height - 1), np.minimum(x0 + 1, width - 1)
    fy, fx = y - y0, x - x0
    top = image[:, y0, x0] * (1 - fx) + image[:, y0, x1] * fx
    return top * (1 - fy) + (image[:, y1, x0] * (1 - fx) + image[:, y1, x1] * fx) * fy


@implementation("RoiAlign")
def _roi_align(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    images, rois, batches = np.asarray(inputs[0]), np.asarray(inputs[1], np.float64), integers(inputs[2])
    rows, columns = attrs.get("output_height", 1), attrs.get("output_width", 1)
    ratio, scale = attrs.get("sampling_ratio", 0), attrs.get("spatial_scale", 1.0)
    half = attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    height, width = images.shape[2:]
    result = np.zeros((len(batches), images.shape[1], rows, columns), images.dtype)
    if not all(0 <= batch < len(images) for batch in batches):
        raise IndexError(f"a region of no image: there are {len(images)}")
    for n, batch in enumerate(batches):
        x1, y1, x2, y2 = rois[n] * scale - (0.5 if half else 0.0)
        w, h = (x2 - x1, y2 - y1) if half else (max(x2 - x1, 1.0), max(y2 - y1, 1.0))
        if not ratio and min(h, w) <= 0:
            continue  # an extent of nothing has no samples, as an end before its beginning
        sy, sx = (ratio or int(np.ceil(h / rows))), (ratio or int(np.ceil(w / columns)))
        y = y1 + (np.arange(rows * sy) + 0.5) * h / (rows * sy)
        x = x1 + (np.arange(columns * sx) + 0.5) * w / (columns * sx)
        yy, xx = np.meshgrid(y, x, indexing="ij")
        inside = (yy >= -1) & (yy <= height) & (xx >= -1) & (xx <= width)
        yy, xx = np.clip(yy, 0, height - 1), np.clip(xx, 0, width - 1)
        image = widened(images[batch])
        if attrs.get("mode", "avg") == "max":
            y0, x0 = np.floor(yy).astype(int), np.floor(xx).astype(int)
            y3, x3 = np.minimum(y0 + 1, height - 1), np.minimum(x0 + 1, width - 1)
            fy, fx = yy - y0, xx - x0
            corners = [
                image[:, y0, x0] * ((1 - fy) * (1 - fx)),
                image[:, y0, x3] * ((1 - fy) * fx),
                image[:, y3, x0] * (fy * (1 - fx)),
                image[:, y3, x3] * (fy * fx),
            ]
            samples = np.where(inside, np.max(corners, axis=0), 0)
            result[n] = samples.reshape(-1, rows, sy, columns, sx).max(axis=(2, 4))
        else:
            samples = np.where(inside, _bilinear(image, yy, xx), 0)
            result[n] = samples.reshape(-1, rows, sy, columns, sx).mean(axis=(2, 4))
    return result


@implementation("MaxRoiPool")
def _max_roi_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    images, rois = np.asarray(inputs[0]), np.asarray(inputs[1], np.float64)
    rows, columns = attrs["pooled_shape"]
    scale = attrs.get("spatial_scale", 1.0)
    result = np.zeros((len(rois), images.shape[1], rows, columns), images.dtype)

    def bounds(low: float, high: float, parts: int, size: int) -> list[tuple[int, int]]:
        first, last = np.floor(low * scale + 0.5), np.floor(high * scale + 0.5)
        step = max(last - first + 1, 1) / parts
        starts, ends = first + np.floor(np.arange(parts) * step), first + np.ceil(np.arange(1, parts + 1) * step)
        pairs = zip(np.clip(starts, 0, size), np.clip(ends, 0, size), strict=True)
        return [(int(a), int(b)) for a, b in pairs]

    for n, (batch, x1, y1, x2, y2) in enumerate(rois):
        image = images[int(batch)]
        for i, (top, bottom) in enumerate(bounds(y1, y2, rows, images.shape[2])):
            for j, (left, right) in enumerate(bounds(x1, x2, columns, images.shape[3])):
                if bottom > top and right > left:  # a part outside the image stays 0
                    result[n, :, i, j] = image[:, top:bottom, left:right].max(axis=(1, 2))
    return result


@implementation("DeformConv")
def _deform_conv(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, weight, offset = np.asarray(inputs[0]), wide(inputs[1]), wide(inputs[2])
    bias, mask = get(inputs, 3), get(inputs, 4)
    rank, kernel, out = array.ndim - 2, weight.shape[2:], offset.shape[2:]
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    groups, parts = attrs.get("group", 1), attrs.get("offset_group", 1)
    batch, channels = array.shape[:2]
    shifts = offset.reshape(batch, parts, *kernel, rank, *out)
    factors = None if mask is None else wide(mask).reshape(batch, parts, *kernel, *out)
    corners = np.indices(out)
    each = channels // parts
    columns = np.empty((batch, channels, *kernel, *out))
    for n, part in np.ndindex(batch, parts):
        image = wide(array[n, part * each : (part + 1) * each])
        for tap in np.ndindex(*kernel):
            where = [
                corners[a] * strides[a] - pads[a] + tap[a] * dilations[a] + shifts[(n, part, *tap, a)]
                for a in range(rank)
            ]
            values = _interpolated(image, where)
            if factors is not None:
                values = values * factors[(n, part, *tap)]
            columns[(n, slice(part * each, (part + 1) * each), *tap)] = values
    inner = columns.reshape(batch, groups, -1, int(np.prod(out)))
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    result = np.matmul(matrix, inner).reshape(batch, weight.shape[0], *out)
    if bias is not None:
        result = result + wide(bias).reshape(-1, *[1] * rank)
    return result.astype(array.dtype)


def _interpolated(image: Array, where: list[Array]) -> Array:
    """image [C, spatial...] at fractional positions, linear along every axis; the image is 0 beyond its edges."""
    total: Array = np.zeros((image.shape[0], *where[0].shape))
    floors = [np.floor(w) for w in where]
    for corner in np.ndindex(*[2] * len(where)):
        weight: Array = np.ones(where[0].shape)
        index = []
        for w, low, step, size in zip(where, floors, corner, image.shape[1:], strict=True):
            at = low + step
            share = w - low if step else 1 - (w - low)
            weight = weight * np.where((at >= 0) & (at < size), share, 0)
            index.append(np.clip(at, 0, size - 1).astype(int))
        total += image[(slice(None), *index)] * weight
    return total


def _reflect(x: Array, low: float, high: float) -> Array:
    span = high - low
    if span <= 0:
        return np.zeros_like(x)
    x = np.mod(x - low, 2 * span)
    return low + np.where(x > span, 2 * span - x, x)


def _cubic_weights(t: Array) -> Array:
    a = -0.75
    d = np.stack([1 + t, t, 1 - t, 2 - t])
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, far)


@implementation("GridSample")
def _grid_sample(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    images, grid = np.asarray(inputs[0]), np.asarray(inputs[1], np.float64)
    mode, border, corners = (
        attrs.get("mode", "linear"),
        attrs.get("padding_mode", "zeros"),
        attrs.get("align_corners", 0),
    )
    sizes = images.shape[2:]
    rank = len(sizes)
    result = np.zeros((*images.shape[:2], *grid.shape[1:-1]), np.float64)

    def pixel(value: Array, size: int) -> Array:
        return (value + 1) / 2 * (size - 1) if corners else ((value + 1) * size - 1) / 2

    def folded(value: Array, size: int) -> Array:
        if border == "border":
            return np.clip(value, 0, size - 1)
        if border == "reflection":
            reflected = _reflect(value, 0, size - 1) if corners else _reflect(value, -0.5, size - 0.5)
            return np.clip(reflected, 0, size - 1)
        return value

    for n in range(images.shape[0]):
        where = [pixel(grid[n, ..., rank - 1 - axis], sizes[axis]) for axis in range(rank)]
        taps: list[list[tuple[Array, Array]]] = []
        for axis in range(rank):
            at = where[axis] if mode in ("cubic", "bicubic") else folded(where[axis], sizes[axis])
            if mode == "nearest":
                taps.append([(np.rint(at), np.ones_like(at))])
                continue
            base = np.floor(at)
            if mode in ("cubic", "bicubic"):
                weights = _cubic_weights(at - base)
                taps.append([(base + k - 1, weights[k]) for k in range(4)])
            else:
                taps.append([(base, 1 - (at - base)), (base + 1, at - base)])
        for choice in np.ndindex(*(len(t) for t in taps)):
            weight, index = np.ones(grid.shape[1:-1]), []
            for axis, k in enumerate(choice):
                position, factor = taps[axis][k]
                position = folded(position, sizes[axis]) if mode in ("cubic", "bicubic") else position
                inside = (position >= 0) & (position <= sizes[axis] - 1)
                weight = weight * np.where(inside, factor, 0)
                index.append(np.clip(position, 0, sizes[axis] - 1).astype(int))
            result[n] += widened(images[n])[(slice(None), *index)] * weight
    return result.astype(images.dtype)


@implementation("AffineGrid")
def _affine_grid(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    theta, size = np.asarray(inputs[0]), integers(inputs[1])
    sizes = size[2:]
    if attrs.get("align_corners", 0):
        steps = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in sizes]
    else:
        steps = [(2 * np.arange(n) + 1) / n - 1 for n in sizes]
    mesh = np.meshgrid(*steps, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones_like(mesh[0])], axis=-1)
    return np.einsum("...k,nik->n...i", points, theta.astype(np.float64)).astype(theta.dtype)


@implementation("CenterCropPad")
def _center_crop_pad(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, shape = np.asarray(inputs[0]), integers(inputs[1])
    for axis, wanted in zip(attrs.get("axes") or range(array.ndim), shape, strict=True):
        size = array.shape[axis]
        if wanted < size:
            start = (size - wanted) // 2
            array = np.take(array, np.arange(start, start + wanted), axis)
        elif wanted > size:
            before = (wanted - size) // 2
            widths = [(0, 0)] * array.ndim
            widths[axis % array.ndim] = (before, wanted - size - before)
            array = np.pad(array, widths)
    return array
