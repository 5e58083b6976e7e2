"""Reductions, arg-reductions, softmax, running sums and TopK. Sums are formed in f64 for floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import is_float, mean, widened
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from acl_runtime.aicpu.shape_ops import axes_of


def wide(array: Any) -> Array:
    """Floats as f64, in which sums are formed; integers as they are."""
    array = np.asarray(array)
    return widened(array).astype(np.float64) if is_float(array) else array


def _log_sum_exp(x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
    x = x.astype(np.float64)
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.asarray(total).reshape(np.sum(x, axis=axis).shape)


def _extreme(function: Any, highest: bool) -> Callable[..., Array]:
    def reduce(x: Array, axis: tuple[int, ...] | None, keepdims: bool) -> Array:
        if x.size:
            return np.asarray(function(x, axis=axis, keepdims=keepdims))
        if x.dtype == np.bool_:
            start: Any = not highest
        elif x.dtype.kind in "iu":
            start = np.iinfo(x.dtype).min if highest else np.iinfo(x.dtype).max
        else:
            start = -np.inf if highest else np.inf
        return np.asarray(function(x, axis=axis, keepdims=keepdims, initial=start))

    return reduce


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype),
    "ReduceMean": mean,
    "ReduceProd": lambda x, axis, keepdims: np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype),
    "ReduceMax": _extreme(np.max, True),
    "ReduceMin": _extreme(np.min, False),
    "ReduceL1": lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(
        np.sum(np.square(x.astype(np.float64)), axis=axis, keepdims=keepdims)
    ),
    "ReduceSumSquare": lambda x, axis, keepdims: np.sum(np.square(x), axis=axis, keepdims=keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(np.sum(x.astype(np.float64), axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _register(op: str, function: Callable[..., Any]) -> None:
    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        array, axes = np.asarray(inputs[0]), axes_of(inputs, attrs, 1)
        if not axes:
            if attrs.get("noop_with_empty_axes", 0):
                return array
            axes = list(range(array.ndim))
        # numpy rounds towards 0 when a float mean becomes an integer, as ONNX does.
        result = function(wide(array), tuple(axes), bool(attrs.get("keepdims", 1)))
        return np.asarray(result).astype(array.dtype)


for _op, _function in _REDUCTIONS.items():
    _register(_op, _function)


def _arg(op: str, function: Callable[..., Any]) -> None:
    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        array, axis = np.asarray(inputs[0]), attrs.get("axis", 0)
        if attrs.get("select_last_index", 0):
            found = array.shape[axis] - 1 - function(np.flip(array, axis), axis=axis)
        else:
            found = function(array, axis=axis)
        return np.asarray(np.expand_dims(found, axis) if attrs.get("keepdims", 1) else found, np.int64)


_arg("ArgMax", np.argmax)
_arg("ArgMin", np.argmin)


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax in f64; rows that are all -inf give NaN."""
    x = wide(x)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


@implementation("Softmax")
def _softmax(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return softmax(inputs[0], attrs.get("axis", -1)).astype(np.asarray(inputs[0]).dtype)


@implementation("LogSoftmax")
def _log_softmax(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, axis = wide(inputs[0]), attrs.get("axis", -1)
    x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))).astype(np.asarray(inputs[0]).dtype)


@implementation("Hardmax")
def _hardmax(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, axis = np.asarray(inputs[0]), attrs.get("axis", -1)
    result = np.zeros_like(array)
    if not array.size:
        return result
    np.put_along_axis(result, np.expand_dims(np.argmax(array, axis), axis), np.ones((), array.dtype), axis)
    return result


def _cumulative(op: str, function: Callable[..., Any], neutral: int) -> None:
    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        array, axis = np.asarray(inputs[0]), int(np.asarray(inputs[1]).reshape(-1)[0])
        x = wide(array)
        x = np.flip(x, axis) if attrs.get("reverse", 0) else x
        result = function(x, axis=axis, dtype=x.dtype)
        if attrs.get("exclusive", 0):
            first = np.full_like(np.take(result, [0], axis), neutral)
            result = np.concatenate([first, np.delete(result, -1, axis)], axis)
        result = np.flip(result, axis) if attrs.get("reverse", 0) else result
        return np.asarray(result).astype(array.dtype)


_cumulative("CumSum", np.cumsum, 0)
_cumulative("CumProd", np.cumprod, 1)


@implementation("LpNormalization")
def _lp_normalization(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, axis = wide(inputs[0]), attrs.get("axis", -1)
    size = np.linalg.norm(x, attrs.get("p", 2), axis, keepdims=True)
    return np.asarray(np.where(size == 0, 0, x / size)).astype(np.asarray(inputs[0]).dtype)


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    middle = mean(x, axes)
    inverse = 1 / np.sqrt(mean(np.square(x - middle), axes) + epsilon)
    return (x - middle) * inverse, middle, inverse


def _per_channel(parameter: Any, rank: int) -> Array:
    return wide(parameter).reshape(-1, *[1] * (rank - 2))


@implementation("LayerNormalization")
def _layer_normalization(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    array, bias = np.asarray(inputs[0]), get(inputs, 2)
    axes = tuple(range(attrs.get("axis", -1) % array.ndim, array.ndim))
    result, middle, inverse = _normalised(wide(array), axes, attrs.get("epsilon", 1e-5))
    result = result * wide(inputs[1]) + (0 if bias is None else wide(bias))
    return result.astype(array.dtype), middle.astype(np.float32), inverse.astype(np.float32)


@implementation("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_normalization(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    axes = tuple(range(attrs.get("axis", -1) % array.ndim, array.ndim))
    x = wide(array)
    scale = 1 / np.sqrt(mean(np.square(x), axes) + attrs.get("epsilon", 1e-5))
    return np.asarray(x * scale * wide(inputs[1])).astype(array.dtype)


@implementation("BatchNormalization")
def _batch_normalization(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = wide(array)
    scale, bias, middle, variance = (_per_channel(p, array.ndim) for p in inputs[1:5])
    running = [middle, variance]
    if attrs.get("training_mode", 0):
        momentum, axes = attrs.get("momentum", 0.9), (0, *range(2, array.ndim))
        batch = mean(x, axes)
        found = [_per_channel(moment, array.ndim) for moment in (batch, mean(np.square(x - batch), axes))]
        running = [old * momentum + new * (1 - momentum) for old, new in zip(running, found, strict=True)]
        middle, variance = found
    result = (x - middle) / np.sqrt(variance + attrs.get("epsilon", 1e-5)) * scale + bias
    kept = (r.reshape(-1).astype(np.asarray(p).dtype) for r, p in zip(running, inputs[3:5], strict=True))
    return result.astype(array.dtype), *kept


@implementation("InstanceNormalization")
def _instance_normalization(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    result = _normalised(wide(array), tuple(range(2, array.ndim)), attrs.get("epsilon", 1e-5))[0]
    return (result * _per_channel(inputs[1], array.ndim) + _per_channel(inputs[2], array.ndim)).astype(array.dtype)


@implementation("GroupNormalization")
def _group_normalization(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    grouped = wide(array).reshape(array.shape[0], attrs["num_groups"], -1)
    result = _normalised(grouped, (2,), attrs.get("epsilon", 1e-5))[0].reshape(array.shape)
    return (result * _per_channel(inputs[1], array.ndim) + _per_channel(inputs[2], array.ndim)).astype(array.dtype)


@implementation("MeanVarianceNormalization")
def _mean_variance_normalization(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array = np.asarray(inputs[0])
    x, axes = wide(array), tuple(attrs.get("axes", (0, 2, 3)))
    distance = x - mean(x, axes)
    return np.asarray(distance / (np.sqrt(mean(np.square(distance), axes)) + 1e-9)).astype(array.dtype)


@implementation("LRN")
def _lrn(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    array, size = np.asarray(inputs[0]), attrs["size"]
    squares, channels = np.square(wide(array)), array.shape[1]
    sums = np.stack(
        [squares[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].sum(axis=1) for c in range(channels)], axis=1
    )
    scale = attrs.get("bias", 1.0) + attrs.get("alpha", 1e-4) / size * sums
    return np.asarray(wide(array) / scale ** attrs.get("beta", 0.75)).astype(array.dtype)
