"""Sliding windows: the extent rule that convolution shares, and the pooling operators."""

from __future__ import annotations

from collections.abc import Sequence

from graph_opt.ir.core import Requirement
from graph_opt.ir.ops.registry import INTS, Inference, declare
from tensor_types.dims import Dim, Expr, ceildiv, dmin, floordiv
from tensor_types.dtypes import I64


def window_extent(
    ctx: Inference, extent: Dim, kernel: Dim, stride: int, dilation: int, pads: tuple[int, int], auto_pad: str,
    ceil_mode: bool = False,
) -> Dim:  # fmt: skip
    """Number of positions of a window along an axis (ONNX Conv and MaxPool, output shape)."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return ceildiv(extent, stride)
    before, after = (0, 0) if auto_pad == "VALID" else pads
    reach = extent + before + after - (kernel - 1) * dilation - 1
    if ctx.node.op == "MaxPool" and isinstance(reach, int) and -stride < reach < 0 and extent != 0:
        return 1  # as onnxruntime has it, whose division cuts: the maximum of what there is
    if isinstance(reach, int) and reach < 0:
        raise ctx.error(
            f"a window of {(kernel - 1) * dilation + 1} does not fit an extent of {extent + before + after}"
        )
    if isinstance(reach, Expr) and isinstance(kernel, int) and not ctx.proves(0, reach):
        # An empty axis has no position; where a window does not fit an axis with elements, a run is refused. Where an
        # axis cannot be empty, or its extent would come out below 0 then, the window must fit.
        whole = (kernel - 1) * dilation + 1
        always = (before + after - whole) // stride + 1 < 0 or ctx.proves(1, extent)
        if not (always and ctx.raises(reach, 0)):
            window = whole * dmin(extent, 1)
            ctx.graph.requirements.setdefault(Requirement(extent + before + after, window, "window"), ctx.node.name)
    if not ceil_mode:
        return floordiv(reach, stride) + 1
    # A last window that would start in the right padding is left out.
    return dmin(ceildiv(reach, stride) + 1, floordiv(extent + before - 1, stride) + 1)


def window_shape(ctx: Inference, spatial: Sequence[Dim], kernel: Sequence[Dim], ceil_mode: bool = False) -> list[Dim]:
    """The spatial output shape of a Conv or pooling node, from its attributes."""
    rank = len(spatial)
    strides = ctx.attr("strides") or (1,) * rank
    dilations = ("dilations" in (ctx.op.attrs if ctx.op else ()) and ctx.attr("dilations")) or (1,) * rank
    auto_pad = ("auto_pad" in (ctx.op.attrs if ctx.op else ()) and ctx.attr("auto_pad")) or "NOTSET"
    pads = ctx.attr("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ctx.error(f"kernel_shape, strides, dilations and pads do not all speak of {rank} spatial axes")
    return [
        window_extent(
            ctx, spatial[i], kernel[i], int(strides[i]), int(dilations[i]), (int(pads[i]), int(pads[rank + i])),
            str(auto_pad), ceil_mode,
        )
        for i in range(rank)
    ]  # fmt: skip


def pool(ctx: Inference) -> None:
    shape, kernel = ctx.shape(), tuple(int(k) for k in ctx.attr("kernel_shape"))
    if shape is None:
        out: tuple[Dim, ...] = ctx.fresh_shape(len(kernel) + 2)
    else:
        first = _first_spatial(ctx)
        spatial = window_shape(ctx, shape[first : first + len(kernel)], kernel, bool(ctx.attr("ceil_mode")))
        out = (*shape[:first], *spatial, *shape[first + len(kernel) :])
    ctx.set(0, ctx.dtype(), out)
    ctx.set(1, I64, out)


def global_pool(ctx: Inference) -> None:
    shape, first = ctx.shape(), _first_spatial(ctx)
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    count = len(shape) - 2
    ctx.set(0, ctx.dtype(), (*shape[:first], *([1] * count), *shape[first + count :]))


def _first_spatial(ctx: Inference) -> int:
    """The axis at which the spatial ones start: operators of com.microsoft may have the channels last."""
    last = "channels_last" in (ctx.op.attrs if ctx.op else ()) and ctx.attr("channels_last")
    return 1 if last else 2


def _unpool(ctx: Inference) -> None:
    shape, given = ctx.shape(), ctx.content(2)
    kernel = tuple(int(k) for k in ctx.attr("kernel_shape"))
    rank = len(kernel)
    if given is not None:
        return ctx.set(0, ctx.dtype(), given)
    if shape is None or ctx.has(2):
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(rank + 2))
    strides, pads = ctx.attr("strides") or (1,) * rank, ctx.attr("pads") or (0,) * (2 * rank)
    spatial = [
        (shape[i + 2] - 1) * int(strides[i]) - int(pads[i]) - int(pads[rank + i]) + kernel[i] for i in range(rank)
    ]
    ctx.set(0, ctx.dtype(), (*shape[:2], *spatial))


WINDOW = {"auto_pad": "NOTSET", "dilations": INTS, "kernel_shape": INTS, "pads": INTS, "strides": INTS}
"""Attributes that Conv and the pooling operators share."""

declare("MaxPool", "X", "reduction", pool, {**WINDOW, "ceil_mode": 0, "storage_order": 0})
declare("AveragePool", "X", "reduction", pool, {**WINDOW, "ceil_mode": 0, "count_include_pad": 0})
declare("LpPool", "X", "reduction", pool, {**WINDOW, "ceil_mode": 0, "p": 2})
declare("GlobalAveragePool GlobalMaxPool", "X", "reduction", global_pool)
declare("GlobalLpPool", "X", "reduction", global_pool, {"p": 2})
declare("MaxUnpool", "X I output_shape?", "movement", _unpool, {"kernel_shape": INTS, "pads": INTS, "strides": INTS})
