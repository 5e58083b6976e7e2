"""Images: Resize, grids, regions of interest, box selection."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from graph_opt.ir.ops.registry import INT, INTS, Inference, declare
from tensor_types.dims import Dim, floordiv, product
from tensor_types.dtypes import F32, I64, U8


def _scaled(ctx: Inference, extent: Dim, scale: float, axis: int) -> Dim:
    if isinstance(extent, int):
        return int(np.float32(extent) * np.float32(scale))  # the reference multiplies in f32 and cuts
    ratio = Fraction(scale).limit_denominator(64)
    if np.float32(ratio) != np.float32(scale):
        return ctx.fresh(axis=axis)
    return floordiv(extent * ratio.numerator, ratio.denominator)


def _resize(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    axes = ctx.attr("axes")
    places = [ctx.normal_axis(int(a), len(shape)) for a in (range(len(shape)) if axes is None else axes)]
    out = list(shape)
    for i, axis in enumerate(places):
        out[axis] = _extent(ctx, shape, places, i, 2, axis)
    ctx.set(0, ctx.dtype(), out)


def _extent(ctx: Inference, shape: tuple[Dim, ...], places: list[int], i: int, first: int, at: int) -> Dim:
    """What becomes of axis places[i]; scales are input `first`, sizes the one behind. One that only data decides is a
    dim of axis `at` of the result."""
    sizes, scales, given = ctx.content(first + 1), ctx.content(first), ctx.node.input(first)
    data = None if given is None else given.data
    if sizes is not None and ctx.attr("keep_aspect_ratio_policy") == "stretch":
        return sizes[i]
    if ctx.has(first + 1):
        return _kept_aspect(ctx, shape, places, sizes, i, at)
    if data is not None and data.size:
        return _scaled(ctx, shape[places[i]], float(data.reshape(-1)[i]), at)
    return shape[places[i]] * scales[i] if scales else ctx.fresh(axis=at)


def _resize_taps(ctx: Inference) -> None:
    """For one axis of a Resize, number `place` of those that it resizes, of a tensor whose shape is input 0: taps
    [count, extent of the result]."""
    shape = ctx.content(0)
    taps = {"nearest": 1, "linear": 2}.get(str(ctx.attr("mode")), 4)
    if shape is None:
        extent: Dim = ctx.fresh(axis=1)
    else:
        extent = _extent(ctx, shape, [int(a) for a in ctx.attr("resized")], int(ctx.attr("place")), 1, 1)
    ctx.set(0, I64, (taps, extent))
    ctx.set(1, F32, (taps, extent))


def _kept_aspect(
    ctx: Inference, shape: tuple[Dim, ...], places: list[int], sizes: tuple[Dim, ...] | None, i: int, at: int
) -> Dim:
    extents = [shape[a] for a in places]
    if sizes is None or not all(isinstance(v, int) for v in (*sizes, *extents)):
        return ctx.fresh(axis=at)
    ratios = [float(s) / float(e) for s, e in zip(sizes, extents, strict=True)]  # type: ignore[arg-type]
    scale = min(ratios) if ctx.attr("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    return int(np.floor(scale * float(extents[i]) + 0.5))  # type: ignore[arg-type]


def _grid_sample(ctx: Inference) -> None:
    shape, grid = ctx.shape(0), ctx.shape(1)
    ctx.set(0, ctx.dtype(), None if shape is None or grid is None else (*shape[:2], *grid[1:-1]))


def _affine_grid(ctx: Inference) -> None:
    size, length = ctx.content(1), ctx.shape(1)
    if size is not None:
        return ctx.set(0, ctx.dtype(), (size[0], *size[2:], len(size) - 2))
    rank = length[0] if length else None
    ctx.set(0, ctx.dtype(), ctx.fresh_shape(rank) if isinstance(rank, int) else None)


def _roi_align(ctx: Inference) -> None:
    shape, rois = ctx.shape(0), ctx.shape(1)
    channels = ctx.fresh(axis=1) if shape is None else shape[1]
    count = ctx.fresh(axis=0) if rois is None else rois[0]
    ctx.set(0, ctx.dtype(), (count, channels, int(ctx.attr("output_height")), int(ctx.attr("output_width"))))


def _max_roi_pool(ctx: Inference) -> None:
    shape, rois = ctx.shape(0), ctx.shape(1)
    channels = ctx.fresh(axis=1) if shape is None else shape[1]
    count = ctx.fresh(axis=0) if rois is None else rois[0]
    ctx.set(0, ctx.dtype(), (count, channels, *(int(d) for d in ctx.attr("pooled_shape"))))


def _non_max_suppression(ctx: Inference) -> None:
    scores, most = ctx.shape(1), ctx.ints(2)
    highest: int | None = None
    if scores is not None and most is not None and isinstance(scores[0], int) and isinstance(scores[1], int):
        boxes = scores[2] if isinstance(scores[2], int) else most[0]
        highest = scores[0] * scores[1] * min(most[0], boxes)
    ctx.set(0, I64, (ctx.fresh(highest), 3))


def _col2im(ctx: Inference) -> None:
    shape, image, block = ctx.shape(), ctx.content(1), ctx.content(2)
    if shape is None or image is None or block is None:
        return ctx.set(0, ctx.dtype(), None)
    ctx.set(0, ctx.dtype(), (shape[0], floordiv(shape[1], product(block)), *image))


def _decode(ctx: Inference) -> None:
    channels = 1 if ctx.attr("pixel_format") == "Grayscale" else 3
    ctx.set(0, U8, (ctx.fresh(axis=0), ctx.fresh(axis=1), channels))


_RESIZE = {
    "antialias": 0, "axes": INTS, "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75,
    "exclude_outside": 0, "extrapolation_value": 0.0, "keep_aspect_ratio_policy": "stretch", "mode": "nearest",
    "nearest_mode": "round_prefer_floor",
}  # fmt: skip
_TAPS = {k: v for k, v in _RESIZE.items() if k not in ("axes", "antialias", "extrapolation_value")}
declare("Resize", "X roi? scales? sizes?", "movement", _resize, _RESIZE)
declare("ResizeTaps", "shape scales? sizes?", "aicpu", _resize_taps, {**_TAPS, "resized": INTS, "place": INT})
declare(
    "GridSample", "X grid", "movement", _grid_sample, {"align_corners": 0, "mode": "linear", "padding_mode": "zeros"}
)
declare("AffineGrid", "theta size", "elementwise", _affine_grid, {"align_corners": 0})
declare(
    "RoiAlign", "X rois batch_indices", "reduction", _roi_align,
    {"coordinate_transformation_mode": "half_pixel", "mode": "avg", "output_height": 1, "output_width": 1,
     "sampling_ratio": 0, "spatial_scale": 1.0},
)  # fmt: skip
declare("MaxRoiPool", "X rois", "reduction", _max_roi_pool, {"pooled_shape": INTS, "spatial_scale": 1.0})
declare(
    "NonMaxSuppression", "boxes scores max_output_boxes_per_class? iou_threshold? score_threshold?", "aicpu",
    _non_max_suppression, {"center_point_box": 0},
)  # fmt: skip
declare(
    "Col2Im", "input image_shape block_shape", "movement", _col2im, {"dilations": INTS, "pads": INTS, "strides": INTS}
)
declare("ImageDecoder", "encoded_stream", "aicpu", _decode, {"pixel_format": "RGB"})
