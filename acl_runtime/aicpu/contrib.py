"""Operators of com.microsoft that onnxruntime's optimizers and quantizer write into models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from acl_runtime.aicpu.elementwise import widened
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


def _scaled_product(a: Array, a_scale: Any, a_zero: Any, b: Array, b_scale: Any, b_zero: Any, bias: Any) -> Array:
    """(a - a_zero) (b - b_zero) a_scale b_scale + bias, scales and zero points of b for all or per column."""
    left = a.astype(np.float64) - (0 if a_zero is None else np.asarray(a_zero).astype(np.float64))
    right = b.astype(np.float64) - (0 if b_zero is None else np.asarray(b_zero).astype(np.float64))
    result = (left @ right) * (np.asarray(a_scale) * np.asarray(b_scale))
    return np.asarray(result + (0 if bias is None else np.asarray(bias))).astype(np.float32)


@implementation(DOMAIN + "DynamicQuantizeMatMul")
def _dynamic_quantize_matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    b, b_scale, b_zero, bias = np.asarray(inputs[1]), inputs[2], get(inputs, 3), get(inputs, 4)
    a, a_scale, a_zero = evaluate("DynamicQuantizeLinear", {}, inputs[:1], 3)
    return _scaled_product(a, a_scale, a_zero, b, b_scale, b_zero, bias)


@implementation(DOMAIN + "MatMulIntegerToFloat")
def _matmul_integer_to_float(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b, a_scale, b_scale = (np.asarray(v) for v in inputs[:4])
    return _scaled_product(a, a_scale, get(inputs, 4), b, b_scale, get(inputs, 5), get(inputs, 6))


def _unpacked(packed: Array, bits: int) -> Array:
    """Unsigned numbers of `bits` bits out of bytes along the last axis, the lowest bits first."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * bits
    parts = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], packed.shape[-1] * each)


@implementation(DOMAIN + "MatMulNBits")
def _matmul_n_bits(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a = np.asarray(inputs[0])
    rows, depth, bits, block = attrs["N"], attrs["K"], attrs.get("bits", 4), attrs["block_size"]
    zeros, groups, bias = get(inputs, 3), get(inputs, 4), get(inputs, 5)
    blocks = -(-depth // block)
    scales = wide(inputs[2]).reshape(rows, blocks)
    weights = _unpacked(np.asarray(inputs[1]).reshape(rows, -1), bits)[:, :depth].astype(np.float64)
    if zeros is None:
        points = np.full((rows, blocks), float(1 << (bits - 1)))
    elif np.asarray(zeros).dtype == np.uint8:
        points = _unpacked(np.asarray(zeros).reshape(rows, -1), bits)[:, :blocks].astype(np.float64)
    else:
        points = wide(zeros).reshape(rows, blocks)
    group = np.arange(depth) // block if groups is None else np.asarray(groups)[:depth]
    weights = (weights - points[:, group]) * scales[:, group]
    result = wide(a) @ weights.T
    return np.asarray(result if bias is None else result + wide(bias)).astype(a.dtype)


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
    mean = total.mean(axis=-1, keepdims=True)
    inverse = 1 / np.sqrt(np.square(total - mean).mean(axis=-1, keepdims=True) + attrs.get("epsilon", 1e-12))
    result = (total - mean) * inverse * wide(inputs[2]) + (0 if beta is None else wide(beta))
    return result.astype(kind), mean.astype(np.float32), inverse.astype(np.float32), total.astype(kind)


@implementation(DOMAIN + "SkipSimplifiedLayerNormalization")
def _skip_simplified_layer_normalization(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    kind = np.asarray(inputs[0]).dtype
    total = _with_skip(inputs, get(inputs, 3))
    inverse = 1 / np.sqrt(np.square(total).mean(axis=-1, keepdims=True) + attrs.get("epsilon", 1e-12))
    result = total * inverse * wide(inputs[2])
    mean = total.mean(axis=-1, keepdims=True)
    return result.astype(kind), mean.astype(np.float32), inverse.astype(np.float32), total.astype(kind)


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


# Attention


def _rotated(x: Array, cos: Array, sin: Array, positions: Array, interleaved: bool) -> Array:
    """x [B, H, S, D] turned by the angles of positions [B, S]; the elements beyond the tables stay."""
    c, s = wide(cos)[positions][:, None], wide(sin)[positions][:, None]
    width = 2 * c.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        both = np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(turned.shape)
    else:
        a, b = np.split(turned, 2, axis=-1)
        both = np.concatenate([a * c - b * s, a * s + b * c], axis=-1)
    return np.concatenate([both, rest], axis=-1)


@implementation(DOMAIN + "GroupQueryAttention")
def _group_query_attention(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, ...]:
    """Outputs [B, S, H*D] and caches [B, Hkv, T, D]. Rows beyond a sequence's own length hold nothing of use."""
    kind = np.asarray(inputs[0]).dtype
    heads, kv_heads = attrs["num_heads"], attrs["kv_num_heads"]
    past_k, past_v, cos, sin, given, bias, sink = (get(inputs, i) for i in (3, 4, 7, 8, 9, 10, 11))
    batch, length, _width = np.shape(inputs[0])

    def split(x: Array, count: int) -> Array:
        return x.reshape(batch, length, count, -1).transpose(0, 2, 1, 3)

    if get(inputs, 1) is None:
        packed = split(wide(inputs[0]), heads + 2 * kv_heads)
        q, k, v = np.split(packed, [heads, heads + kv_heads], axis=1)
    else:
        q, k, v = split(wide(inputs[0]), heads), split(wide(inputs[1]), kv_heads), split(wide(inputs[2]), kv_heads)
    totals = np.asarray(inputs[5]).reshape(-1).astype(np.int64) + 1
    whole = int(np.asarray(inputs[6]).reshape(-1)[0])
    # A first prompt may be padded behind; later calls append to each sequence.
    before = np.zeros_like(totals) if whole == length else totals - length
    positions = before[:, None] + np.arange(length) if given is None else np.asarray(given).reshape(batch, length)
    if attrs.get("do_rotary", 0):
        q, k = (_rotated(x, cos, sin, positions, bool(attrs.get("rotary_interleaved", 0))) for x in (q, k))
    room = max(whole, 0 if past_k is None else np.shape(past_k)[2])
    caches = []
    for new, old in ((k, past_k), (v, past_v)):
        cache = np.zeros((batch, kv_heads, room, new.shape[-1]))
        for b in range(batch):
            if old is not None:
                cache[b, :, : before[b]] = wide(old)[b, :, : before[b]]
            cache[b, :, before[b] : before[b] + length] = new[b]
        caches.append(cache)
    keys, values = (np.repeat(c, heads // kv_heads, axis=1)[:, :, :whole] for c in caches)
    scores = q @ keys.swapaxes(-1, -2) * (attrs.get("scale") or 1 / np.sqrt(q.shape[-1]))
    cap = attrs.get("softcap") or 0.0
    scores = np.tanh(scores / cap) * cap if cap else scores
    if bias is not None:
        scores = scores + wide(bias)[..., :whole]
    rows, columns = (before[:, None] + np.arange(length))[:, None, :, None], np.arange(whole)
    hidden = columns > rows if attrs.get("causal", 1) else columns >= totals[:, None, None, None]
    window = attrs.get("local_window_size", -1)
    if window > 0:
        hidden = hidden | (columns <= rows - window)
    scores = np.where(hidden, -np.inf, scores)
    if sink is not None or attrs.get("smooth_softmax", -1) == 1:
        extra = np.zeros(heads) if sink is None else wide(sink)
        column = np.broadcast_to(extra.reshape(1, -1, 1, 1), (*scores.shape[:-1], 1))
        weights = softmax(np.concatenate([scores, column], axis=-1))[..., :-1]
    else:
        weights = softmax(scores)
    result = (weights @ values).transpose(0, 2, 1, 3).reshape(batch, length, -1)
    return result.astype(kind), *(c.astype(kind) for c in caches)
