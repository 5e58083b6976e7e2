"""Quantised operators: QuantizeLinear and its family, integer products and convolutions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from acl_runtime.aicpu.elementwise import cast, is_float, widened
from acl_runtime.aicpu.products import convolve
from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import from_onnx


def _spread(parameter: Any, shape: tuple[int, ...], attrs: Attrs) -> Array:
    """A scale or zero point for every element: one for all, per axis, or per block of an axis."""
    parameter = np.asarray(parameter)
    if parameter.size == 1:
        return parameter.reshape(())
    axis = attrs.get("axis", 1) % len(shape)
    block = attrs.get("block_size", 0)
    if block:
        return np.take(parameter, np.arange(shape[axis]) // block, axis)
    return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def saturate(values: Array, target: np.dtype) -> Array:
    """Whole numbers clipped into an integer dtype."""
    info: Any = ml_dtypes.iinfo(target)  # type: ignore[no-untyped-call]
    return np.clip(values, float(info.min), float(info.max)).astype(np.int64).astype(target)


def quantize(x: Array, scale: Array, zero: Array, target: np.dtype) -> Array:
    """round(x / scale) + zero, ties to even, saturated; floats are cast."""
    ratio = widened(x).astype(np.float32) / widened(np.asarray(scale)).astype(np.float32)
    if is_float(np.empty(0, target)):
        return cast(ratio + widened(np.asarray(zero)).astype(np.float32), target)
    return saturate(np.rint(ratio).astype(np.float64) + np.asarray(zero).astype(np.float64), target)


@implementation("QuantizeLinear")
def _quantize_linear(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, zero = np.asarray(inputs[0]), get(inputs, 2)
    number = attrs.get("output_dtype", 0)
    target = np.asarray(zero).dtype if zero is not None else from_onnx(number).numpy if number else np.dtype(np.uint8)
    zeros = np.zeros((), target) if zero is None else _spread(zero, x.shape, attrs)
    return quantize(x, _spread(inputs[1], x.shape, attrs), zeros, target)


@implementation("DequantizeLinear")
def _dequantize_linear(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, zero = np.asarray(inputs[0]), get(inputs, 2)
    scale = np.asarray(inputs[1])
    values = widened(x).astype(np.float32)
    if zero is not None:
        values = values - _spread(zero, x.shape, attrs).astype(np.float32)
        if x.dtype == np.int32:  # f32 does not hold every i32
            values = (x.astype(np.int64) - _spread(zero, x.shape, attrs).astype(np.int64)).astype(np.float32)
    number = attrs.get("output_dtype", 0)
    target = from_onnx(number).numpy if number else scale.dtype
    return np.asarray(values * _spread(widened(scale), x.shape, attrs)).astype(target)


@implementation("DynamicQuantizeLinear")
def _dynamic_quantize_linear(inputs: Inputs, attrs: Attrs, _: int) -> tuple[Array, Array, Array]:
    x = np.asarray(inputs[0], np.float32)
    low, high = np.float32(min(0, x.min(initial=0))), np.float32(max(0, x.max(initial=0)))
    scale = np.float32((high - low) / np.float32(255))
    safe = scale if scale != 0 else np.float32(1)
    zero = np.uint8(np.clip(np.rint(-low / safe), 0, 255))
    return quantize(x, safe, zero, np.dtype(np.uint8)), np.asarray(scale), np.asarray(zero)


def _centred(x: Any, zero: Any, axis: int | None) -> Array:
    """An integer tensor minus its zero point as f64, in which products of bytes are exact."""
    x = np.asarray(x).astype(np.float64)
    if zero is None:
        return x
    zero = np.asarray(zero).astype(np.float64)
    if zero.size > 1 and axis is not None and zero.ndim == 1:
        zero = zero.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return x - (zero.reshape(()) if zero.size == 1 else zero)


@implementation("MatMulInteger")
def _matmul_integer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a = _centred(inputs[0], get(inputs, 2), -2)
    return np.asarray(a @ _centred(inputs[1], get(inputs, 3), -1)).astype(np.int32)


@implementation("ConvInteger")
def _conv_integer(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    zero, outside = get(inputs, 2), attrs.get("pad_value", 0)
    if zero is not None and attrs.get("zero_outside"):
        zero, outside = None, int(np.asarray(zero).reshape(()))
    x, w = _centred(inputs[0], zero, None), _centred(inputs[1], get(inputs, 3), 0)
    return convolve(x, w, attrs, outside).astype(np.int32)


@implementation("QLinearMatMul")
def _qlinear_matmul(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (np.asarray(v) for v in inputs)
    total = _centred(a, a_zero, -2) @ _centred(b, b_zero, -1)
    a_factor = a_scale[..., None] if a_scale.size > 1 and a_scale.ndim else a_scale.reshape(-1)[0]
    factor = np.float32(1) * a_factor * (b_scale if b_scale.size > 1 else b_scale.reshape(-1)[0])
    return saturate(np.rint(total.astype(np.float32) * factor / y_scale).astype(np.float64) + y_zero, y_zero.dtype)


@implementation("QLinearConv")
def _qlinear_conv(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (np.asarray(v) for v in inputs[:8])
    bias = get(inputs, 8)
    total = convolve(_centred(x, x_zero, None), _centred(w, w_zero, 0), attrs)
    column = [-1, *[1] * (x.ndim - 2)]
    if bias is not None:
        total = total + np.asarray(bias).reshape(column)
    scale = w_scale.reshape(column) if w_scale.size > 1 else w_scale.reshape(())
    ratio = total.astype(np.float32) * (x_scale.reshape(()) * scale / y_scale.reshape(()))
    return saturate(np.rint(ratio).astype(np.float64) + float(y_zero.reshape(())), y_zero.dtype)
