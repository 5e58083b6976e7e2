"""Reductions along axes: Reduce*, arg extremes, softmax, cumulative sums, TopK."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from graph_opt.ir.ops.registry import Inference, Rule, Shape, along_axis, declare
from tensor_types.dims import Dim, dmax, dmin
from tensor_types.dtypes import I64


def kept_shape(shape: Shape, axes: set[int], keepdims: bool) -> list[Dim]:
    """The shape without the extents of the reduced axes."""
    if keepdims:
        return [1 if i in axes else d for i, d in enumerate(shape)]
    return [d for i, d in enumerate(shape) if i not in axes]


def _reduce(combine: Callable[[Dim, Dim], Dim] | None) -> Rule:
    def rule(ctx: Inference) -> None:
        shape, axes, keep = ctx.shape(), ctx.ints(1), bool(ctx.attr("keepdims"))
        if shape is None:
            scalar = not ctx.has(1) and not keep and not ctx.attr("noop_with_empty_axes")
            return ctx.set(0, ctx.dtype(), () if scalar else None)
        if ctx.has(1) and axes is None:
            length = ctx.shape(1)
            count = length[0] if length else None
            known = keep or isinstance(count, int)
            rank = len(shape) if keep or not isinstance(count, int) else len(shape) - count
            return ctx.set(0, ctx.dtype(), ctx.fresh_shape(rank) if known else None)
        if not axes and ctx.attr("noop_with_empty_axes"):
            return ctx.set(0, ctx.dtype(), shape)
        gone = {ctx.normal_axis(a, len(shape)) for a in (axes or range(len(shape)))}
        array = ctx.array(0)
        content = None
        if combine is not None and array is not None and array.size and gone == set(range(len(shape))):
            content = [reduce(combine, array.reshape(-1).tolist())]
        ctx.set(0, ctx.dtype(), kept_shape(shape, gone, keep), content)

    return rule


def _arg(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set(0, I64, None)
    ctx.set(0, I64, kept_shape(shape, {ctx.axis(len(shape))}, bool(ctx.attr("keepdims"))))


def _top_k(ctx: Inference) -> None:
    shape, k = ctx.shape(), ctx.content(1)
    out: list[Dim] | None = None
    if shape is not None:
        axis = ctx.axis(len(shape))
        out = list(shape)
        highest = shape[axis]
        out[axis] = k[0] if k is not None else ctx.fresh(highest if isinstance(highest, int) else None, axis=axis)
    ctx.set(0, ctx.dtype(), out)
    ctx.set(1, I64, out)


def _cumulative(ctx: Inference) -> None:
    array, axis = ctx.array(0), ctx.ints(1)
    content = None
    if ctx.node.op == "CumSum" and array is not None and array.ndim == 1 and axis is not None:
        flipped = array[::-1] if ctx.attr("reverse") else array
        total = np.add.accumulate(flipped, dtype=object) if array.size else flipped
        total = total - flipped if ctx.attr("exclusive") and array.size else total
        content = total[::-1] if ctx.attr("reverse") else total
    ctx.set(0, ctx.dtype(), ctx.shape(), content)


_AXES = {"keepdims": 1, "noop_with_empty_axes": 0}
for _name, _combine in {
    "ReduceSum": lambda a, b: a + b, "ReduceProd": lambda a, b: a * b, "ReduceMax": dmax, "ReduceMin": dmin,
    "ReduceMean": None, "ReduceL1": None, "ReduceL2": None, "ReduceLogSum": None, "ReduceLogSumExp": None,
    "ReduceSumSquare": None,
}.items():  # fmt: skip
    declare(_name, "data axes?", "reduction", _reduce(_combine), _AXES)
declare("ArgMax ArgMin", "data", "reduction", _arg, {"axis": 0, "keepdims": 1, "select_last_index": 0})
declare("Softmax LogSoftmax Hardmax", "input", "reduction", along_axis, {"axis": -1})
declare("TopK", "X K", "reduction", _top_k, {"axis": -1, "largest": 1, "sorted": 1})
declare("CumSum CumProd", "x axis", "reduction", _cumulative, {"exclusive": 0, "reverse": 0})
