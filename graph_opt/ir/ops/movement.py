"""Movement operators: they place elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np

from graph_opt.ir.ops.broadcast import broadcast
from graph_opt.ir.ops.registry import CONTENT_LIMIT, INT, INTS, Inference, Shape, along_axis, declare, same
from tensor_types.dims import Dim, Expr, ceildiv, dim, dmax, dmin, floordiv, has_extrema, mod, names, product
from tensor_types.dtypes import BOOL, I64, from_onnx


def _transpose(ctx: Inference) -> None:
    shape, perm = ctx.shape(), ctx.attr("perm")
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    order = tuple(range(len(shape)))[::-1] if perm is None else tuple(int(p) for p in perm)
    if sorted(order) != list(range(len(shape))):
        raise ctx.error(f"perm {order} does not permute {len(shape)} axes")
    content = ctx.array(0)
    ctx.set(0, ctx.dtype(), [shape[p] for p in order], None if content is None else content.transpose(order))


def reshaped(ctx: Inference, shape: Shape | None, target: Sequence[Dim], zero_copies: bool) -> Shape | None:
    """The shape that a Reshape to `target` gives: 0 copies the input's extent, one -1 is what remains."""
    out: list[Dim] = []
    for axis, extent in enumerate(target):
        if extent == 0 and zero_copies:
            if shape is None:
                return None
            extent = shape[axis]
        out.append(extent)
    holes = [i for i, d in enumerate(out) if d == -1]
    if len(holes) > 1:
        raise ctx.error("more than one -1 in the target shape")
    if not holes:
        return tuple(out)
    rest = product(d for d in out if d != -1)
    if shape is None:
        out[holes[0]] = ctx.fresh(axis=holes[0])
        return tuple(out)
    # Extents that appear on both sides cancel, so that a fresh or symbolic factor needs no proof that it is positive.
    left, right = list(shape), [d for d in out if d != -1]
    for extent in list(right):
        if extent in left:
            left.remove(extent)
            right.remove(extent)
    total, divisor = product(left), product(right)
    if divisor == 0 or rest == 0:
        out[holes[0]] = 0
    elif isinstance(total, int) and isinstance(divisor, int) and total % divisor:
        raise ctx.error(f"{product(shape)} elements do not divide by {rest}")
    else:
        out[holes[0]] = floordiv(total, divisor)
    return tuple(out)


def _reshape(ctx: Inference) -> None:
    shape = ctx.shape()
    if not ctx.has(1):  # a pass dropped the target: the shape that was inferred from it is the target
        _same_count(ctx, shape, ctx.node.output.shape)
        return ctx.set(0, ctx.dtype(), ctx.node.output.shape, ctx.content(0))
    target, length = ctx.content(1), ctx.shape(1)
    if target is None:
        rank = length[0] if length is not None and len(length) == 1 else None
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(rank) if isinstance(rank, int) else None)
    out = reshaped(ctx, shape, target, not ctx.attr("allowzero"))
    _same_count(ctx, shape, out)
    ctx.set(0, ctx.dtype(), out, ctx.content(0))


def _same_count(ctx: Inference, shape: Sequence[Dim] | None, out: Sequence[Dim] | None) -> None:
    """A shape takes as many elements as there are: known now, or required of a run."""
    if shape is None or out is None:
        return
    before, after = product(shape), product(out)
    if isinstance(before, int) and isinstance(after, int) and before != after:
        raise ctx.error(f"{before} elements cannot take the shape {list(out)}")
    ctx.require_equal(before, after)


def _flatten(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(2))
    axis = int(ctx.attr("axis"))
    axis += len(shape) if axis < 0 else 0
    ctx.set(0, ctx.dtype(), (product(shape[:axis]), product(shape[axis:])), ctx.content(0))


def _squeeze(ctx: Inference) -> None:
    shape, axes = ctx.shape(), ctx.ints(1)
    if shape is None or (ctx.has(1) and axes is None):
        return ctx.set(0, ctx.dtype(), None)
    if axes is None:
        if not all(isinstance(d, int) for d in shape):
            return ctx.set(0, ctx.dtype(), None)  # whether a symbolic extent is 1 is not known
        gone = {i for i, d in enumerate(shape) if d == 1}
    else:
        gone = {ctx.normal_axis(a, len(shape)) for a in axes}
        wrong = [shape[a] for a in gone if isinstance(shape[a], int) and shape[a] != 1]
        if wrong:
            raise ctx.error(f"an axis of extent {wrong[0]} cannot be squeezed")
        for axis in sorted(gone):
            ctx.require_equal(shape[axis], 1)
    ctx.set(0, ctx.dtype(), [d for i, d in enumerate(shape) if i not in gone], ctx.content(0))


def _unsqueeze(ctx: Inference) -> None:
    shape, axes = ctx.shape(), ctx.ints(1)
    if shape is None or axes is None:
        return ctx.set(0, ctx.dtype(), None)
    rank = len(shape) + len(axes)
    new = {ctx.normal_axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise ctx.error(f"axes {list(axes)} repeat")
    rest = iter(shape)
    ctx.set(0, ctx.dtype(), [1 if i in new else next(rest) for i in range(rank)], ctx.content(0))


def _expand(ctx: Inference) -> None:
    shape, target, length = ctx.shape(), ctx.content(1), ctx.shape(1)
    if shape is None or target is None:
        count = length[0] if length is not None and len(length) == 1 else None
        known = isinstance(count, int) and shape is not None
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(max(count, len(shape or ()))) if known else None)  # type: ignore[type-var, arg-type]
    out = broadcast(ctx, shape, target)
    content = ctx.array(0)
    if content is not None and out is not None and all(isinstance(d, int) for d in out):
        content = np.broadcast_to(content, cast("tuple[int, ...]", out))
    else:
        content = None
    ctx.set(0, ctx.dtype(), out, content)


def _concat(ctx: Inference) -> None:
    count = len(ctx.node.inputs)
    dtypes = {ctx.dtype(i) for i in range(count)}
    if len(dtypes) > 1:
        raise ctx.error(f"the inputs have different dtypes: {', '.join(sorted(map(str, dtypes)))}")
    shapes = [ctx.shape(i) for i in range(count)]
    known = next((s for s in shapes if s is not None), None)
    if known is None:
        return ctx.set(0, ctx.dtype(), None)
    rank = len(known)
    if any(s is not None and len(s) != rank for s in shapes):
        raise ctx.error("the inputs have different ranks")
    axis = ctx.axis(rank)
    out: list[Dim] = []
    for i in range(rank):
        if i == axis:
            full = all(s is not None for s in shapes)
            out.append(sum((s[i] for s in shapes if s is not None), start=0) if full else ctx.fresh(axis=i))
            continue
        out.append(ctx.agreed((s[i] for s in shapes if s is not None), of=partial("axis {} of the inputs".format, i)))
    arrays = [ctx.array(i) for i in range(count)]
    known_arrays = [a for a in arrays if a is not None]
    content = np.concatenate(known_arrays, axis=axis) if len(known_arrays) == count else None
    ctx.set(0, ctx.dtype(), out, content)


def _split(ctx: Inference) -> None:
    shape = ctx.shape()
    if shape is None:
        return ctx.set_all(ctx.dtype(), None)
    axis, count = ctx.axis(len(shape)), len(ctx.node.outputs)
    sizes: list[Dim]
    if ctx.has(1):
        given = ctx.content(1)
        sizes = list(given) if given is not None else [ctx.fresh(index=i, axis=axis) for i in range(count)]
        total = sum(sizes, start=0)
        if isinstance(total, int) and isinstance(shape[axis], int) and total != shape[axis]:
            raise ctx.error(f"sizes {sizes} do not add up to {shape[axis]}")
    else:
        chunk = ceildiv(shape[axis], count)
        exact = mod(shape[axis], count) == 0
        sizes = [chunk] * count if exact else [*[chunk] * (count - 1), shape[axis] - chunk * (count - 1)]
    if len(sizes) != count:
        raise ctx.error(f"{len(sizes)} sizes for {count} outputs")
    array = ctx.array(0)
    start: Dim = 0
    for index, size in enumerate(sizes):
        content = None
        if array is not None and isinstance(start, int) and isinstance(size, int):
            content = np.take(array, range(start, start + size), axis=axis)
        ctx.set(index, ctx.dtype(), (*shape[:axis], size, *shape[axis + 1 :]), content)
        start = start + size


INT_MAX = 2**31 - 1
OPEN_END = 10**9
"""Exporters write this or more for "to the end"; no symbolic extent is taken to reach it."""


def _slice_bound(ctx: Inference, bound: Dim, extent: Dim, low: Dim, high: Dim) -> Dim | None:
    """A start or end as an index in [low, high], `high` where an empty axis puts it below `low`; None when its sign is
    not known."""
    if isinstance(bound, int):
        if bound >= (INT_MAX if isinstance(extent, int) else OPEN_END):
            return high
        if bound <= -INT_MAX:
            return low
    if ctx.proves(bound, -1) or (ctx.proves(bound, 0) and ctx.assumes(bound, -1)):
        bound = bound + extent
    elif not ctx.proves(0, bound):
        return None
    if not ctx.proves(low, bound):
        bound = dmax(bound, low)
    return bound if ctx.proves(bound, high) else dmin(bound, high)


def slice_range(ctx: Inference, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim] | None:
    """First index and number of elements of start:end:step; None when a bound's sign is not known.

    As in onnxruntime, an end of the highest int32 or int64 means "to the end" whatever the direction.
    """
    if step == 0:
        raise ctx.error("a step of 0")
    if not ctx.proves(0, extent):
        ctx.assumes(0, extent)
    if step > 0:
        first, last = (_slice_bound(ctx, b, extent, 0, extent) for b in (start, end))
    else:
        end = -INT_MAX if end in (2**31 - 1, 2**63 - 1) else end
        first = _slice_bound(ctx, start, extent, 0, extent - 1)
        last = _slice_bound(ctx, end, extent, -1, extent - 1)
    if first is None or last is None:
        return None
    count = ceildiv(last - first if step > 0 else first - last, abs(step))
    count = count if ctx.proves(0, count) else dmax(count, 0)
    if step == 1 and isinstance(count, Expr) and has_extrema(count):
        # What the limits of an empty axis made of it says less than what it mostly is.
        plain = (end - start, extent - first, *map(dim, sorted(names(count))))
        count = next((p for p in plain if not has_extrema(p) and ctx.same(count, p)), count)
    return first, count


def _slice(ctx: Inference) -> None:
    shape = ctx.shape()
    starts, ends = ctx.content(1), ctx.content(2)
    axes, steps = ctx.ints(3), ctx.ints(4)
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    if ctx.has(3) and axes is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(len(shape)))
    lengths = (ctx.shape(1), ctx.shape(2))
    count = next((s[0] for s in lengths if s and isinstance(s[0], int)), len(axes) if axes else len(shape))
    axes = tuple(range(count)) if axes is None else axes
    given = [("starts", starts), ("ends", ends), ("steps", steps)]
    if wrong := [f"{len(v)} {name}" for name, v in given if v is not None and len(v) != len(axes)]:
        raise ctx.error(f"{wrong[0]} for {len(axes)} axes")
    out = list(shape)
    array = ctx.array(0)
    for i, raw in enumerate(axes):
        axis = ctx.normal_axis(raw, len(shape))
        step = 1 if not ctx.has(4) else None if steps is None else steps[i]
        taken = None
        if starts is not None and ends is not None and step is not None:
            taken = slice_range(ctx, shape[axis], starts[i], ends[i], step)
        if taken is None or step is None:
            extent = shape[axis]
            out[axis] = ctx.fresh(extent if isinstance(extent, int) else None, axis=axis)
            array = None
            continue
        first, out[axis] = taken
        if array is not None:
            # Contents have static shapes, and then both are numbers unless a bound is symbolic.
            known = isinstance(first, int) and isinstance(out[axis], int)
            places = range(first, first + out[axis] * step, step) if known else ()  # type: ignore[arg-type]
            array = np.take(array, places, axis=axis) if known else None
    ctx.set(0, ctx.dtype(), out, array)


def _gather(ctx: Inference) -> None:
    shape, indices = ctx.shape(0), ctx.shape(1)
    if shape is None or indices is None:
        return ctx.set(0, ctx.dtype(), None)
    axis = ctx.axis(len(shape))
    content = None
    array, where = ctx.array(0), ctx.ints(1)
    if array is not None and where is not None:
        extent = array.shape[axis]
        if any(not -extent <= w < extent for w in where):
            raise ctx.error(f"index {max(where, key=abs)} is outside an extent of {extent}")
        places = np.array(where, np.int64).reshape(cast("tuple[int, ...]", indices))
        content = np.asarray(np.take(array, places, axis=axis), object)
    ctx.set(0, ctx.dtype(), (*shape[:axis], *indices, *shape[axis + 1 :]), content)


def _gather_elements(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), ctx.shape(1))


def _gather_nd(ctx: Inference) -> None:
    shape, indices, batch = ctx.shape(0), ctx.shape(1), int(ctx.attr("batch_dims"))
    depth = indices[-1] if indices else None
    if shape is None or indices is None or not isinstance(depth, int):
        return ctx.set(0, ctx.dtype(), None)
    ctx.set(0, ctx.dtype(), (*indices[:-1], *shape[batch + depth :]))


def _tile(ctx: Inference) -> None:
    shape, repeats = ctx.shape(), ctx.content(1)
    if shape is None or repeats is None:
        return ctx.set(0, ctx.dtype(), None if shape is None else ctx.fresh_shape(len(shape)))
    if len(repeats) != len(shape):
        raise ctx.error(f"{len(repeats)} repeats for {len(shape)} axes")
    array, counts = ctx.array(0), ctx.ints(1)
    content = None if array is None or counts is None else np.tile(array, counts)
    ctx.set(0, ctx.dtype(), [d * r for d, r in zip(shape, repeats, strict=True)], content)


def _pad(ctx: Inference) -> None:
    shape, pads, axes = ctx.shape(), ctx.content(1), ctx.ints(3)
    if shape is None or (ctx.has(3) and axes is None):
        return ctx.set(0, ctx.dtype(), None if shape is None else ctx.fresh_shape(len(shape)))
    places = [ctx.normal_axis(a, len(shape)) for a in (range(len(shape)) if axes is None else axes)]
    out = list(shape)
    if pads is None:
        for axis in places:
            out[axis] = ctx.fresh(axis=axis)
    else:
        if len(pads) != 2 * len(places):
            raise ctx.error(f"{len(pads)} pads for {len(places)} axes")
        for i, axis in enumerate(places):
            out[axis] = out[axis] + pads[i] + pads[len(places) + i]
    ctx.set(0, ctx.dtype(), out)


def _one_hot(ctx: Inference) -> None:
    shape, depth = ctx.shape(), ctx.content(1)
    if shape is None:
        return ctx.set(0, ctx.dtype(2), None)
    axis = ctx.axis(len(shape) + 1)
    extent = ctx.fresh(axis=axis) if depth is None else depth[0]
    ctx.set(0, ctx.dtype(2), (*shape[:axis], extent, *shape[axis:]), _one_hot_content(ctx, depth))


def _one_hot_content(ctx: Inference, depth: Shape | None) -> Shape | None:
    """The numbers that an exporter makes by setting one of a vector's."""
    indices, values = ctx.content(0), ctx.content(2)
    if indices is None or values is None or depth is None or len(indices) != 1 or len(ctx.shape() or ()) > 1:
        return None
    index, count = indices[0], depth[0]
    if not isinstance(index, int) or not isinstance(count, int) or not 0 < count <= CONTENT_LIMIT:
        return None
    place = index + count if index < 0 else index
    return tuple(values[1] if k == place else values[0] for k in range(count))


def _scatter_elements(ctx: Inference) -> None:
    along_axis(ctx)
    data, indices, updates = (ctx.content(k) for k in range(3))
    if data is None or indices is None or updates is None or ctx.rank() != 1 or ctx.attr("reduction") != "none":
        return
    places = [k + len(data) if isinstance(k, int) and k < 0 else k for k in indices]
    if all(isinstance(k, int) and 0 <= k < len(data) for k in places):
        made = list(data)
        for place, update in zip(places, updates, strict=True):
            made[cast(int, place)] = update
        ctx.set(0, ctx.dtype(), ctx.shape(), made)


def _depth_to_space(ctx: Inference) -> None:
    shape, block = ctx.shape(), int(ctx.attr("blocksize"))
    if shape is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(4))
    spatial = [d * block for d in shape[2:]]
    ctx.set(0, ctx.dtype(), (shape[0], floordiv(shape[1], block ** len(spatial)), *spatial))


def _space_to_depth(ctx: Inference) -> None:
    shape, block = ctx.shape(), int(ctx.attr("blocksize"))
    if shape is None:
        return ctx.set(0, ctx.dtype(), ctx.fresh_shape(4))
    spatial = [floordiv(d, block) for d in shape[2:]]
    ctx.set(0, ctx.dtype(), (shape[0], shape[1] * block ** len(spatial), *spatial))


def _compress(ctx: Inference) -> None:
    shape, axis = ctx.shape(), ctx.attr("axis")
    if axis is None:
        total = None if shape is None else product(shape)
        return ctx.set(0, ctx.dtype(), (ctx.fresh(total if isinstance(total, int) else None),))
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    at = ctx.axis(len(shape))
    highest = shape[at] if isinstance(shape[at], int) else None
    ctx.set(0, ctx.dtype(), (*shape[:at], ctx.fresh(highest, axis=at), *shape[at + 1 :]))  # type: ignore[arg-type]


def _non_zero(ctx: Inference) -> None:
    shape = ctx.shape()
    total = None if shape is None else product(shape)
    count = ctx.fresh(total if isinstance(total, int) else None, axis=1)
    # Of a scalar it is [1, n], as onnxruntime makes it; ONNX's text has [0, n], which would not say where.
    rank: Dim = ctx.fresh() if shape is None else max(len(shape), 1)
    ctx.set(0, I64, (rank, count))


def _unique(ctx: Inference) -> None:
    shape, axis = ctx.shape(), ctx.attr("axis")
    if axis is not None and shape is None:
        ctx.set(0, ctx.dtype(), None)
        count: Dim = ctx.fresh(index=1)
    elif axis is None or shape is None:
        total = None if shape is None else product(shape)
        count = ctx.fresh(total if isinstance(total, int) else None)
        ctx.set(0, ctx.dtype(), (count,))
    else:
        at = ctx.axis(len(shape))
        count = ctx.fresh(shape[at] if isinstance(shape[at], int) else None, axis=at)  # type: ignore[arg-type]
        ctx.set(0, ctx.dtype(), (*shape[:at], count, *shape[at + 1 :]))
    inverse: Dim | None = None
    if shape is not None:
        inverse = product(shape) if axis is None else shape[ctx.axis(len(shape))]
    ctx.set(1, I64, (count,))
    ctx.set(2, I64, (ctx.fresh(index=2) if inverse is None else inverse,))
    ctx.set(3, I64, (count,))


def _center_crop_pad(ctx: Inference) -> None:
    shape, target, axes = ctx.shape(), ctx.content(1), ctx.attr("axes")
    if shape is None:
        return ctx.set(0, ctx.dtype(), None)
    places = [ctx.normal_axis(int(a), len(shape)) for a in (range(len(shape)) if axes is None else axes)]
    out = list(shape)
    for i, axis in enumerate(places):
        out[axis] = ctx.fresh(axis=axis) if target is None else target[i]
    ctx.set(0, ctx.dtype(), out)


def _eye_like(ctx: Inference) -> None:
    number = ctx.attr("dtype")
    ctx.set(0, ctx.dtype() if number is None else from_onnx(int(number)), ctx.shape())


def _dropout(ctx: Inference) -> None:
    ctx.set(0, ctx.dtype(), ctx.shape(), ctx.content(0))
    ctx.set(1, BOOL, ctx.shape())


declare("Transpose", "data", "movement", _transpose, {"perm": INTS})
declare("Reshape", "data shape?", "movement", _reshape, {"allowzero": 0})
declare("Flatten", "input", "movement", _flatten, {"axis": 1})
declare("Squeeze", "data axes?", "movement", _squeeze)
declare("Unsqueeze", "data axes", "movement", _unsqueeze)
declare("Expand", "input shape", "movement", _expand)
declare("Concat", "inputs*", "movement", _concat, {"axis": INT})
declare("Split", "input split?", "movement", _split, {"axis": 0, "num_outputs": INT})
declare("Slice", "data starts ends axes? steps?", "movement", _slice)
declare("Gather", "data indices", "movement", _gather, {"axis": 0})
declare("GatherElements", "data indices", "movement", _gather_elements, {"axis": 0})
declare("GatherND", "data indices", "movement", _gather_nd, {"batch_dims": 0})
declare("ScatterElements", "data indices updates", "movement", _scatter_elements, {"axis": 0, "reduction": "none"})
declare("ScatterND", "data indices updates", "movement", same, {"reduction": "none"})
declare("TensorScatter", "past_cache update write_indices?", "movement", same, {"axis": -2, "mode": "linear"})
declare("Tile", "input repeats", "movement", _tile)
declare("Pad", "data pads constant_value? axes?", "movement", _pad, {"mode": "constant"})
declare("Trilu", "input k?", "movement", same, {"upper": 1})
declare("OneHot", "indices depth values", "movement", _one_hot, {"axis": -1})
declare("DepthToSpace", "input", "movement", _depth_to_space, {"blocksize": INT, "mode": "DCR"})
declare("SpaceToDepth", "input", "movement", _space_to_depth, {"blocksize": INT, "mode": "DCR"})
declare("ReverseSequence", "input sequence_lens", "movement", same, {"batch_axis": 1, "time_axis": 0})
declare("Compress", "input condition", "aicpu", _compress, {"axis": INT})
declare("NonZero", "X", "aicpu", _non_zero)
declare("Unique", "X", "aicpu", _unique, {"axis": INT, "sorted": 1})
declare("CenterCropPad", "input_data shape", "movement", _center_crop_pad, {"axes": INTS})
declare("EyeLike", "input", "movement", _eye_like, {"dtype": INT, "k": 0})
declare("Dropout", "data ratio? training_mode?", "movement", _dropout, {"seed": INT}, deterministic=False)
