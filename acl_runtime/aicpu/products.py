"""Matrix products, convolutions and pooling. Floats are multiplied in f64 if small, in f32 by BLAS if large."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as grid
from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import is_float, mean, widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import dtype
from tensor_types.errors import InvalidModel


def matmul(a: Any, b: Any) -> Array:
    """numpy's matmul with 16-bit floats computed in f32 and integers without wrapping below 32 bits."""
    a, b = np.asarray(a), np.asarray(b)
    if is_float(a):
        return np.asarray(np.matmul(widened(a), widened(b)))
    return np.asarray(np.matmul(a, b))


def _result_dtype(x: Array, attrs: Attrs) -> np.dtype:
    """The dtype of a product: its operands', or its accumulator's where `result_dtype` asks for it."""
    return dtype(attrs["result_dtype"]).numpy if attrs.get("result_dtype") else np.dtype(x.dtype)


@implementation("MatMul")
def _matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return matmul(*inputs[:2]).astype(_result_dtype(np.asarray(inputs[0]), attrs))


@implementation("Gemm")
def _gemm(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b, c = np.asarray(inputs[0]), np.asarray(inputs[1]), get(inputs, 2)
    result = matmul(a.T if attrs.get("transA", 0) else a, b.T if attrs.get("transB", 0) else b)
    kind, alpha, beta = a.dtype, attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    result = result if alpha == 1 else result * alpha
    if c is not None:
        c = widened(np.asarray(c))
        result = result + (c if beta == 1 else c * beta)
    return np.asarray(result).astype(kind)


@implementation("Einsum")
def _einsum(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    arrays = [widened(np.asarray(a)) for a in inputs]
    return np.asarray(np.einsum(attrs["equation"], *arrays, optimize=True)).astype(np.asarray(inputs[0]).dtype)


@implementation("com.microsoft::Inverse")
def _inverse(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    try:
        return np.asarray(np.linalg.inv(widened(array))).astype(array.dtype)
    except np.linalg.LinAlgError:
        raise InvalidModel("a matrix has no inverse", remedy="give matrices of full rank") from None


@implementation("Det")
def _det(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.asarray(np.linalg.det(inputs[0])).astype(np.asarray(inputs[0]).dtype)


def spatial_pads(
    attrs: Attrs, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial axis, `auto_pad` resolved."""
    rank, mode = len(size), attrs.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = list(attrs.get("pads") or [0] * (2 * rank))
        return pads[:rank], pads[rank:]
    if mode == "VALID":
        return [0] * rank, [0] * rank
    totals = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """View [N, C, out..., kernel...] of a padded tensor [N, C, spatial...]."""
    rank = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
    index = [
        slice(None),
        slice(None),
        *(slice(None, None, s) for s in strides),
        *(slice(None, None, d) for d in dilations),
    ]
    return view[tuple(index)]


def convolve(x: Array, w: Array, attrs: Attrs, pad_value: Any = 0) -> Array:
    """Convolution without bias, in the dtype of the operands (which must not overflow in it)."""
    rank, groups = w.ndim - 2, attrs.get("group", 1)
    kernel = list(w.shape[2:])
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    before, after = spatial_pads(attrs, x.shape[2:], kernel, strides, dilations)
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=pad_value)
    view = windows(x, kernel, strides, dilations)
    n, out = x.shape[0], view.shape[2 : 2 + rank]
    each, made = w.shape[1], w.shape[0] // groups
    result = np.empty((n, w.shape[0], *out), np.result_type(x, w))
    for g in range(groups):
        part = np.moveaxis(view[:, g * each : (g + 1) * each], 1, 1 + rank)
        columns = np.ascontiguousarray(part).reshape(-1, each * int(np.prod(kernel)))
        block = columns @ w[g * made : (g + 1) * made].reshape(made, -1).T
        result[:, g * made : (g + 1) * made] = np.moveaxis(block.reshape(n, *out, made), -1, 1)
    return result


@implementation("Conv")
def _conv(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, w, bias = np.asarray(inputs[0]), np.asarray(inputs[1]), get(inputs, 2)
    result = convolve(widened(x), widened(w), attrs)
    if bias is not None:
        result = result + widened(np.asarray(bias)).reshape(-1, *[1] * (x.ndim - 2))
    return result.astype(_result_dtype(x, attrs))


@implementation("ConvTranspose")
def _conv_transpose(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, w, bias = np.asarray(inputs[0]), np.asarray(inputs[1]), get(inputs, 2)
    rank, groups, kernel = w.ndim - 2, attrs.get("group", 1), w.shape[2:]
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    extra = attrs.get("output_padding") or [0] * rank
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra, strict=True)
    ]
    pads = list(attrs.get("pads") or [0] * (2 * rank))
    wanted = attrs.get("output_shape")
    mode = attrs.get("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [min(n * s, f) for n, s, f in zip(x.shape[2:], strides, full, strict=True)]
    if wanted is not None:
        # A shape beyond the full one is filled with zeros.
        totals = [f - o for f, o in zip(full, wanted[-rank:], strict=True)]
        upper = mode == "SAME_UPPER"
        begin = [t // 2 if upper else t - t // 2 for t in totals]
        pads = begin + [t - b for t, b in zip(totals, begin, strict=True)]
    n, each, made = x.shape[0], w.shape[0] // groups, w.shape[1]
    a, b = widened(x), widened(w)
    result = np.zeros((n, made * groups, *full), a.dtype)
    for g in range(groups):
        source = np.moveaxis(a[:, g * each : (g + 1) * each], 1, -1)
        for position in grid(*map(range, kernel)):
            piece = np.moveaxis(source @ b[(slice(g * each, (g + 1) * each), slice(None), *position)], -1, 1)
            place = tuple(
                slice(p * d, p * d + (m - 1) * s + 1, s)
                for p, d, m, s in zip(position, dilations, x.shape[2:], strides, strict=True)
            )
            result[(slice(None), slice(g * made, (g + 1) * made), *place)] += piece
    grown = [(max(-pads[i], 0), max(-pads[i + rank], 0)) for i in range(rank)]
    result = np.pad(result, [(0, 0), (0, 0), *grown])
    cut = tuple(slice(max(pads[i], 0), result.shape[2 + i] - max(pads[i + rank], 0)) for i in range(rank))
    result = result[(slice(None), slice(None), *cut)]
    if bias is not None:
        result = result + widened(np.asarray(bias)).reshape(-1, *[1] * rank)
    return result.astype(_result_dtype(x, attrs))


def _pooling(x: Array, attrs: Attrs) -> tuple[Array, Array, list[int]]:
    """Windows of a padded input, windows of the mask of its real elements, pads before."""
    kernel = list(attrs["kernel_shape"])
    rank = len(kernel)
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    before, after = spatial_pads(attrs, x.shape[2:], kernel, strides, dilations)
    after = list(after)
    beyond = [0] * rank
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        room = x.shape[2 + i] + before[i] + after[i] - span
        if -strides[i] < room < 0:  # one position all the same
            beyond[i] = -room
            continue
        if attrs.get("ceil_mode", 0) and room % strides[i]:
            # The last window may not start in the padding behind.
            start = (room // strides[i] + 1) * strides[i]
            if start < x.shape[2 + i] + before[i]:
                beyond[i] = strides[i] - room % strides[i]
    widths = [(0, 0), (0, 0), *zip(before, after, strict=True)]
    more = [(0, 0), (0, 0), *((0, e) for e in beyond)]
    padded = np.pad(np.pad(x, widths), more)
    real = np.pad(np.pad(np.ones((1, 1, *x.shape[2:]), np.int8), widths, constant_values=2), more, constant_values=0)
    return windows(padded, kernel, strides, dilations), windows(real, kernel, strides, dilations), before


@implementation("MaxPool")
def _max_pool(inputs: Inputs, attrs: Attrs, n_outputs: int) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    rank = array.ndim - 2
    x = widened(array)
    view, real, before = _pooling(x, attrs)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    masked = np.where(real == 1, view, np.array(lowest, x.dtype)).reshape(*view.shape[: 2 + rank], -1)
    result = masked.max(axis=-1).astype(array.dtype)
    if n_outputs < 2:
        return (result,)
    kernel = list(attrs["kernel_shape"])
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    best = np.stack(np.unravel_index(masked.argmax(axis=-1), kernel))
    out = np.indices(view.shape[2 : 2 + rank])
    position = [out[i][None, None] * strides[i] + best[i] * dilations[i] - before[i] for i in range(rank)]
    sizes = list(array.shape[2:])
    column = attrs.get("storage_order", 0)
    flat = np.zeros_like(best[0])
    for i in reversed(range(rank)) if column else range(rank):
        flat = flat * sizes[i] + position[i]
    lead = np.arange(array.shape[0] * array.shape[1]).reshape(*array.shape[:2], *[1] * rank)
    return result, (flat + lead * int(np.prod(sizes))).astype(np.int64)


@implementation("AveragePool")
def _average_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    view, real, _before = _pooling(widened(array), attrs)
    axes = tuple(range(-(array.ndim - 2), 0))
    counted = real > 0 if attrs.get("count_include_pad", 0) else real == 1
    total = view.sum(axis=axes, dtype=np.float64)
    return np.asarray(total / counted.sum(axis=axes)).astype(array.dtype)


@implementation("LpPool")
def _lp_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, p = np.asarray(inputs[0]), attrs.get("p", 2)
    view, _real, _before = _pooling(widened(array), attrs)
    total = (np.abs(view).astype(np.float64) ** p).sum(axis=tuple(range(-(array.ndim - 2), 0)))
    return np.asarray(total ** (1 / p)).astype(array.dtype)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@implementation("GlobalAveragePool")
def _global_average_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x = np.asarray(inputs[0])
    return np.asarray(mean(widened(x).astype(np.float64), _spatial(x))).astype(x.dtype)


@implementation("GlobalMaxPool")
def _global_max_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x = np.asarray(inputs[0])
    return np.asarray(widened(x).max(axis=_spatial(x), keepdims=True)).astype(x.dtype)


@implementation("GlobalLpPool")
def _global_lp_pool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, p = np.asarray(inputs[0]), attrs.get("p", 2)
    total = (np.abs(widened(x)).astype(np.float64) ** p).sum(axis=_spatial(x), keepdims=True)
    return np.asarray(total ** (1 / p)).astype(x.dtype)


@implementation("MaxUnpool")
def _max_unpool(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, index, shape = np.asarray(inputs[0]), np.asarray(inputs[1]), get(inputs, 2)
    rank = x.ndim - 2
    kernel, strides = attrs["kernel_shape"], attrs.get("strides") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    inferred = [
        (n - 1) * s + k - pads[i] - pads[i + rank]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    inner = np.zeros((*x.shape[:2], *inferred), x.dtype)
    inner.reshape(-1)[index.reshape(-1)] = x.reshape(-1)
    if shape is None:
        return inner
    result = np.zeros([int(v) for v in shape], x.dtype)
    result[tuple(slice(n) for n in inner.shape)] = inner
    return result


@implementation("Col2Im")
def _col2im(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    columns = np.asarray(inputs[0])
    image, block = ([int(v) for v in i] for i in inputs[1:3])
    rank = len(image)
    strides, dilations = attrs.get("strides") or [1] * rank, attrs.get("dilations") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    full = [image[i] + pads[i] + pads[i + rank] for i in range(rank)]
    counts = [(full[i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    n, channels = columns.shape[0], columns.shape[1] // int(np.prod(block))
    parts: Array = columns.reshape(n, channels, *block, *counts)
    result: Array = np.zeros((n, channels, *full), columns.dtype)
    for position in grid(*map(range, block)):
        place = tuple(
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(position, dilations, counts, strides, strict=True)
        )
        result[(slice(None), slice(None), *place)] += parts[(slice(None), slice(None), *map(int, position))]
    return result[(slice(None), slice(None), *(slice(pads[i], full[i] - pads[i + rank]) for i in range(rank)))]
