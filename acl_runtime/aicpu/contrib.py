"""Operators of com.microsoft that onnxruntime's optimizers and quantizer write into models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import mean, widened
from acl_runtime.aicpu.products import convolve
from acl_runtime.aicpu.quantize import quantize
from acl_runtime.aicpu.reductions import softmax, wide
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, evaluate, get, implementation

DOMAIN = "com.microsoft::"


# Products


def _turned(x: Array, batch: bool, matrix: bool) -> Array:
    if batch:
        x = np.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if matrix else x


@implementation(DOMAIN + "FusedMatMul")
def _fused_matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a = _turned(widened(np.asarray(inputs[0])), attrs.get("transBatchA", 0), attrs.get("transA", 0))
    b = _turned(widened(np.asarray(inputs[1])), attrs.get("transBatchB", 0), attrs.get("transB", 0))
    return np.asarray(np.matmul(a, b) * attrs.get("alpha", 1.0)).astype(np.asarray(inputs[0]).dtype)


_ACTIVATIONS: dict[str, Callable[..., Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, alpha * x, x),
    "Clip": np.clip,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
}


@implementation(DOMAIN + "FusedConv")
def _fused_conv(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, w = np.asarray(inputs[0]), np.asarray(inputs[1])
    bias, added, activation = get(inputs, 2), get(inputs, 3), attrs.get("activation", "")
    result = convolve(widened(x), widened(w), attrs)
    if bias is not None:
        result = result + widened(np.asarray(bias)).reshape(-1, *[1] * (x.ndim - 2))
    if added is not None:
        result = result + widened(np.asarray(added))
    if activation:
        result = _ACTIVATIONS[activation](result, *(attrs.get("activation_params") or ()))
    return np.asarray(result).astype(x.dtype)


# Activations and norms


@implementation(DOMAIN + "Gelu")
def _gelu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return evaluate("Gelu", {}, inputs)[0]


@implementation(DOMAIN + "BiasGelu")
def _bias_gelu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b = np.asarray(inputs[0]), np.asarray(inputs[1])
    return evaluate("Gelu", {}, [wide(a) + wide(b)])[0].astype(a.dtype)


@implementation(DOMAIN + "FastGelu")
def _fast_gelu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, bias = np.asarray(inputs[0]), get(inputs, 1)
    x = wide(a) + (0 if bias is None else wide(bias))
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(a.dtype)


@implementation(DOMAIN + "QuickGelu")
def _quick_gelu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a = np.asarray(inputs[0])
    return np.asarray(wide(a) / (1 + np.exp(-attrs.get("alpha", 1.702) * wide(a)))).astype(a.dtype)


def _with_skip(inputs: Inputs, bias: Any) -> Array:
    return wide(inputs[0]) + wide(inputs[1]) + (0 if bias is None else wide(bias))


@implementation(DOMAIN + "SkipLayerNormalization")
def _skip_layer_normalization(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    kind, beta = np.asarray(inputs[0]).dtype, get(inputs, 3)
    total = _with_skip(inputs, get(inputs, 4))
    middle = mean(total, -1)
    inverse = 1 / np.sqrt(mean(np.square(total - middle), -1) + attrs.get("epsilon", 1e-12))
    result = (total - middle) * inverse * wide(inputs[2]) + (0 if beta is None else wide(beta))
    return result.astype(kind), middle.astype(np.float32), inverse.astype(np.float32), total.astype(kind)


@implementation(DOMAIN + "SkipSimplifiedLayerNormalization")
def _skip_simplified_layer_normalization(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    kind = np.asarray(inputs[0]).dtype
    total = _with_skip(inputs, get(inputs, 3))
    inverse = 1 / np.sqrt(mean(np.square(total), -1) + attrs.get("epsilon", 1e-12))
    result = total * inverse * wide(inputs[2])
    middle = mean(total, -1)
    return result.astype(kind), middle.astype(np.float32), inverse.astype(np.float32), total.astype(kind)


# Quantised element-wise operators, pooling and softmax: through f32 and back


def _real(x: Any, scale: Any, zero: Any) -> Array:
    point = 0 if zero is None else np.asarray(zero).astype(np.float32)
    return (np.asarray(x).astype(np.float32) - point) * np.asarray(scale, np.float32)


def _whole(x: Array, scale: Any, zero: Any, like: Any) -> Array:
    kind = np.asarray(like).dtype if zero is None else np.asarray(zero).dtype
    return quantize(x.astype(np.float32), np.asarray(scale), np.zeros((), kind) if zero is None else zero, kind)


def _quantized_binary(op: str, function: Callable[[Array, Array], Array]) -> None:
    @implementation(DOMAIN + op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        result = function(_real(*inputs[0:3]), _real(*inputs[3:6]))
        return _whole(result, inputs[6], get(inputs, 7), inputs[0])


_quantized_binary("QLinearAdd", np.add)
_quantized_binary("QLinearMul", np.multiply)


def _quantized_unary(op: str, function: Callable[[Array, Attrs], Array]) -> None:
    """Inputs X, X_scale, X_zero_point, Y_scale, Y_zero_point."""

    @implementation(DOMAIN + op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        return _whole(function(_real(*inputs[0:3]), attrs), inputs[3], get(inputs, 4), inputs[0])


def _old_softmax(x: Array, attrs: Attrs) -> Array:
    """Before opset 13 softmax ran over all axes from `axis` on."""
    axis = attrs.get("axis", -1) % x.ndim
    if attrs["opset"] >= 13:
        return softmax(x, axis)
    return softmax(x.reshape(math.prod(x.shape[:axis]), -1), -1).reshape(x.shape)


def _pooled(op: str) -> Callable[[Array, Attrs], Array]:
    def run(x: Array, attrs: Attrs) -> Array:
        last = bool(attrs.get("channels_last", 0))
        result = evaluate(op, attrs, [np.moveaxis(x, -1, 1) if last else x])[0]
        return np.moveaxis(result, 1, -1) if last else result

    return run


_quantized_unary("QLinearSigmoid", lambda x, _attrs: _ACTIVATIONS["Sigmoid"](x))
_quantized_unary("QLinearLeakyRelu", lambda x, attrs: np.where(x < 0, attrs.get("alpha", 0.01) * x, x))
_quantized_unary("QLinearSoftmax", _old_softmax)
_quantized_unary("QLinearGlobalAveragePool", _pooled("GlobalAveragePool"))
_quantized_unary("QLinearAveragePool", _pooled("AveragePool"))


@implementation(DOMAIN + "QLinearConcat")
def _qlinear_concat(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    scale, zero = inputs[:2]
    parts = [_whole(_real(*inputs[i : i + 3]), scale, zero, inputs[i]) for i in range(2, len(inputs), 3)]
    return np.concatenate(parts, axis=attrs["axis"])
