"""Bytes that an operator would take, told from its inputs and attributes before it takes them.

Only operators that make much of little are listed: the results of others are of the size of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tensor_types.errors import InvalidModel, ResourceLimit
from tensor_types.limits import require_within

_Count = Callable[[Sequence[Any], Mapping[str, Any]], int]


def require_room(op: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> None:
    """ResourceLimit if the operator would take more than the budget `tensor_bytes`; InvalidModel for sizes that are
    no numbers, or negative."""
    count = _COUNTS.get(op)
    if count is None:
        return
    try:
        elements = count(inputs, attrs)
    except (TypeError, ValueError, IndexError, KeyError, OverflowError) as error:
        raise InvalidModel(f"a size is no number: {error}", where={"op": op}, remedy="check the sizes") from error
    first = next((np.asarray(i) for i in inputs if isinstance(i, np.ndarray | np.generic)), None)
    width = 8 if first is None or first.dtype.hasobject else max(first.dtype.itemsize, 1)
    try:
        require_within("tensor_bytes", elements * width, "bytes of one result", "use smaller sizes")
    except ResourceLimit as error:
        error.where.setdefault("op", op)
        raise


def _numbers(value: Any) -> list[int]:
    return [int(n) for n in np.asarray(value).reshape(-1).tolist()]


def _expand(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return max(np.size(inputs[0]), 1) * prod(max(n, 1) for n in _numbers(inputs[1]))


def _tile(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) * prod(_numbers(inputs[1]))


def _range(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    start, limit, delta = (float(np.asarray(v).reshape(-1)[0]) for v in inputs[:3])
    return int(max((limit - start) / delta, 0)) if delta else 0


def _one_hot(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) * max(int(np.asarray(inputs[1]).reshape(-1)[0]), 0)


def _pad(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    array, pads = np.asarray(inputs[0]), _numbers(inputs[1])
    axes = range(array.ndim) if len(inputs) < 4 or inputs[3] is None else _numbers(inputs[3])
    sizes = list(array.shape)
    for k, axis in enumerate(axes):
        sizes[axis] = max(sizes[axis] + pads[k] + pads[k + len(pads) // 2], 0)
    return prod(sizes)


def _resize(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    given = [np.asarray(v, np.float64) for v in inputs[2:4] if v is not None and np.size(v)]
    if not given:
        return 0
    scales = len(inputs) > 2 and inputs[2] is not None and np.size(inputs[2])
    grown = float(np.prod(np.maximum(given[0], 0)))
    rest = np.size(inputs[0])
    return int(min(grown * rest if scales else grown * max(rest, 1) ** (given[0].size < np.ndim(inputs[0])), 1e30))


def _windows(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Elements of all windows of a padded image."""
    array = np.asarray(inputs[0])
    spatial = array.shape[2:]
    kernel = [int(k) for k in attrs.get("kernel_shape") or [1] * len(spatial)]
    pads = [int(p) for p in attrs.get("pads") or [0] * (2 * len(spatial))]
    strides = [max(int(s), 1) for s in attrs.get("strides") or [1] * len(spatial)]
    padded = [n + pads[k] + pads[k + len(spatial)] for k, n in enumerate(spatial)]
    out = [max(n // s, 1) for n, s in zip(padded, strides, strict=False)]
    return prod(array.shape[:2]) * max(prod(max(n, 1) for n in padded), prod(out) * prod(kernel))


def _images(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """f32 elements of a prepared batch, in bytes of the image."""
    image, pixels = np.asarray(inputs[0]), prod(int(n) for n in attrs.get("size") or ())
    if len(inputs) > 1:
        pixels *= len(np.asarray(inputs[1]))
    else:
        sides = [max(int(n), 0) for n in attrs.get("padding") or (0,) * 4]
        pixels = len(image) * (image.shape[1] + sum(sides[:2])) * (image.shape[2] + sum(sides[2:]))
    return pixels * max(int(attrs["channels"]), 4) * 4


def _trees(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return len(inputs[0]) * int(attrs["results"])


def _shape_attribute(_: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return prod(int(n) for n in attrs.get("shape") or ())


def _first_as_shape(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    sizes = _numbers(inputs[0])
    if any(n < 0 for n in sizes):
        raise ValueError(f"{min(sizes)} is negative")
    return prod(sizes)


def _first(value: Any, otherwise: int = 0) -> int:
    return otherwise if value is None else int(np.asarray(value).reshape(-1)[0])


def _broadcast(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return prod(np.broadcast_shapes(*(np.shape(i) for i in inputs if i is not None)))


def _matmul(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    a, b = np.shape(inputs[0]), np.shape(inputs[1])
    return prod(np.broadcast_shapes(a[:-2], b[:-2])) * prod(a[-2:-1]) * prod(b[-1:] if len(b) > 1 else ())


def _concat(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return sum(np.size(i) for i in inputs)


def _gather(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    shape = np.shape(inputs[0])
    return np.size(inputs[1]) * (np.size(inputs[0]) // max(shape[attrs.get("axis", 0)], 1))


def _shape_input(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    """AffineGrid and CenterCropPad: the second input holds the extents, some of them those of the first."""
    return max(np.size(inputs[0]), 1) * prod(max(n, 1) for n in _numbers(inputs[1]))


def _transposed_windows(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Elements of a transposed convolution before its pads are cut off, or of the shape that it is given."""
    x, w = np.shape(inputs[0]), np.shape(inputs[1])
    rank = len(w) - 2
    strides, dilations = (attrs.get(name) or [1] * rank for name in ("strides", "dilations"))
    extra, wanted = attrs.get("output_padding") or [0] * rank, attrs.get("output_shape") or [0] * rank
    rows = zip(x[2:], strides, w[2:], dilations, extra, wanted[-rank:], strict=False)
    full = [max((n - 1) * s + (k - 1) * d + 1 + e, o, 0) for n, s, k, d, e, o in rows]
    return x[0] * w[1] * int(attrs.get("group", 1)) * prod(full)


def _unpooled(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    x = np.shape(inputs[0])
    kernel = attrs["kernel_shape"]
    strides = attrs.get("strides") or [1] * len(kernel)
    inferred = prod(x[:2]) * prod((n - 1) * s + k for n, s, k in zip(x[2:], strides, kernel, strict=False))
    return max(inferred, prod(_numbers(inputs[2])) if len(inputs) > 2 and inputs[2] is not None else 0)


def _col2im(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    image = _numbers(inputs[1])
    pads = attrs.get("pads") or [0] * (2 * len(image))
    full = [max(n + pads[k] + pads[k + len(image)], 1) for k, n in enumerate(image)]
    return prod(np.shape(inputs[0])[:2]) * prod(full)


def _pooled_regions(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return np.shape(inputs[1])[0] * np.shape(inputs[0])[1] * prod(attrs["pooled_shape"])


def _region_samples(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    """Elements of RoiAlign's result, and of the samples of its largest region."""
    rows, columns = attrs.get("output_height", 1), attrs.get("output_width", 1)
    ratio, channels = attrs.get("sampling_ratio", 0), np.shape(inputs[0])[1]
    rois = np.abs(np.asarray(inputs[1], np.float64)) * 2 * abs(attrs.get("spatial_scale", 1.0)) + 2
    widest = float(np.nan_to_num(rois.max(initial=0), nan=1e18, posinf=1e18))
    down, across = (n * ratio if ratio else n + min(widest, 1e18) for n in (rows, columns))
    return int(max(rois.shape[0] * channels * rows * columns, channels * down * across))


def _crops(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    size = [max(n, 1) for n in _numbers(inputs[3])]
    return np.shape(inputs[1])[0] * np.shape(inputs[0])[1] * prod(size)


def _kernel_of_vectors(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    rows = np.shape(inputs[0])[0] if np.ndim(inputs[0]) > 1 else 1
    return rows * max(len(attrs.get("support_vectors") or ()), len(attrs.get("coefficients") or ()))


def _multinomial(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return np.shape(inputs[0])[0] * attrs.get("sample_size", 1)


def _mel(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    return max(_first(inputs[0]), 1) * max(_first(inputs[1]), 1)


def _dft(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    shape, axis = np.shape(inputs[0]), attrs.get("axis", -2)
    axis = _first(inputs[2], axis) if len(inputs) > 2 else axis
    length = _first(inputs[1], shape[axis]) if len(inputs) > 1 else shape[axis]
    return 4 * (np.size(inputs[0]) // max(shape[axis], 1)) * max(2 * shape[axis], length)


def _stft(inputs: Sequence[Any], _: Mapping[str, Any]) -> int:
    shape, step = np.shape(inputs[0]), max(_first(inputs[1]), 1)
    window = np.size(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else 0
    size = _first(inputs[3], window) if len(inputs) > 3 else window
    return 4 * shape[0] * max((shape[1] - size) // step + 1, 0) * size


def _experts(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) + attrs.get("experts", 0)


def _n_grams(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return prod(np.shape(inputs[0])[:-1]) * (max(attrs.get("ngram_indexes") or [0]) + 1)


def _classes(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return np.size(inputs[0]) * len(attrs.get("cats_int64s") or attrs.get("cats_strings") or ())


def _vectors(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> int:
    return max((np.shape(i)[0] for i in inputs if np.ndim(i)), default=1) * sum(attrs["inputdimensions"])


_BROADCAST = (
    "Add Sub Mul Div Mod Pow PRelu BitShift BitwiseAnd BitwiseOr BitwiseXor Max Min Sum Mean SwiGLU Equal Less "
    "LessOrEqual Greater GreaterOrEqual And Or Xor Where StringConcat"
)
_COUNTS: dict[str, _Count] = {
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Resize": _resize,
    "ConstantOfShape": _first_as_shape,
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), _first_as_shape),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _shape_attribute),
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "LpPool", "Conv", "ConvInteger", "QLinearConv", "com.microsoft::FusedConv"), _windows
    ),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(("AffineGrid", "CenterCropPad"), _shape_input),
    "MatMul": _matmul,
    "Concat": _concat,
    "Gather": _gather,
    "ConvTranspose": _transposed_windows,
    "MaxUnpool": _unpooled,
    "Col2Im": _col2im,
    "MaxRoiPool": _pooled_regions,
    "RoiAlign": _region_samples,
    "com.microsoft::CropAndResize": _crops,
    **dict.fromkeys(("ai.onnx.ml::SVMClassifier", "ai.onnx.ml::SVMRegressor"), _kernel_of_vectors),
    "Multinomial": _multinomial,
    "MelWeightMatrix": _mel,
    "DFT": _dft,
    "STFT": _stft,
    "MoeRoute": _experts,
    "PrepareImage": _images,
    "TfIdfVectorizer": _n_grams,
    "Trees": _trees,
    "ai.onnx.ml::OneHotEncoder": _classes,
    "ai.onnx.ml::FeatureVectorizer": _vectors,
}
