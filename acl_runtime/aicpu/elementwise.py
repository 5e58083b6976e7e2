"""Element-wise operators: arithmetic, comparisons, logic, activations, Cast, Where."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from acl_runtime.aicpu.registry import Array, Attrs, Inputs, get, implementation
from tensor_types.dtypes import DTYPES, from_onnx


def mean(x: Array, axis: tuple[int, ...] | int | None, keepdims: bool = True) -> Array:
    """numpy's mean, which of nothing is NaN without a word on the user's terminal."""
    if x.size:
        return np.mean(x, axis=axis, keepdims=keepdims)
    return np.sum(x, axis=axis, keepdims=keepdims) * np.nan


def widened(array: Array) -> Array:
    """Floats of 16 bits and fewer as f32, in which they are computed; everything else as it is."""
    small = array.dtype.kind not in "biuOUSc" and array.dtype.itemsize < 4
    return array.astype(np.float32) if small else array


def is_float(array: Array) -> bool:
    """True for float dtypes, those of ml_dtypes included."""
    return array.dtype.kind == "f" or array.dtype in _SMALL_FLOATS


_SMALL_FLOATS = {np.dtype(d.numpy) for d in DTYPES.values() if d.is_float}


def unary(*ops: str) -> Callable[[Callable[[Array, Attrs], Array]], Callable[[Array, Attrs], Array]]:
    """Registers a function of one array that keeps the dtype."""

    def register(function: Callable[[Array, Attrs], Array]) -> Callable[[Array, Attrs], Array]:
        @implementation(*ops)
        def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
            array = np.asarray(inputs[0])
            return np.asarray(function(widened(array), attrs)).astype(array.dtype, copy=False)

        return function

    return register


def binary(op: str, function: Callable[[Array, Array], Array]) -> None:
    """Registers a function of two broadcast arrays of one dtype that keeps it."""

    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        a, b = np.asarray(inputs[0]), np.asarray(inputs[1])
        return np.asarray(function(widened(a), widened(b))).astype(a.dtype, copy=False)


def comparison(op: str, function: Callable[[Array, Array], Array]) -> None:
    """Registers a function of two broadcast arrays that gives bool."""

    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        return np.asarray(function(np.asarray(inputs[0]), np.asarray(inputs[1])), np.bool_)


def _erf(x: Array) -> Array:
    flat = [math.erf(v) for v in np.asarray(x, np.float64).reshape(-1).tolist()]
    return np.array(flat, np.float64).reshape(np.shape(x))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    # Integer division truncates towards 0; numpy's rounds down.
    inexact = (quotient * safe != a) & ((a < 0) != (safe < 0))
    return np.where(b == 0, 0, quotient + inexact.astype(a.dtype))


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        if b.dtype.kind in "iu" and (b >= 0).all():
            return np.power(a, b.astype(np.int64))
        return np.trunc(np.power(a.astype(np.float64), b.astype(np.float64)))
    return np.power(a, b.astype(a.dtype))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Pow": _power,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "PRelu": lambda x, slope: np.where(x < 0, x * slope, x),
}  # fmt: skip
for _op, _function in _BINARY.items():
    binary(_op, _function)

for _op, _function in {
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
}.items():  # fmt: skip
    comparison(_op, _function)

for _op, _plain in {
    "Abs": np.abs, "Neg": np.negative, "Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Sqrt": np.sqrt,
    "Exp": np.exp, "Log": np.log, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos,
    "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh, "Asinh": np.arcsinh, "Acosh": np.arccosh,
    "Atanh": np.arctanh, "Sign": np.sign, "Reciprocal": np.reciprocal, "Not": np.logical_not, "Erf": _erf,
    "BitwiseNot": np.invert, "Sigmoid": _sigmoid, "Softplus": _softplus,
    "Relu": lambda x: np.maximum(x, np.zeros((), x.dtype)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
}.items():  # fmt: skip
    unary(_op)(lambda x, _attrs, f=_plain: f(x))  # type: ignore[misc]


@unary("LeakyRelu")
def _leaky_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x < 0, x * np.float64(attrs.get("alpha", 0.01)).astype(x.dtype), x)


@unary("Elu")
def _elu(x: Array, attrs: Attrs) -> Array:
    return np.where(x < 0, attrs.get("alpha", 1.0) * np.expm1(np.minimum(x, 0)), x)


@unary("Celu")
def _celu(x: Array, attrs: Attrs) -> Array:
    alpha = attrs.get("alpha", 1.0)
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))


@unary("Selu")
def _selu(x: Array, attrs: Attrs) -> Array:
    alpha, gamma = attrs.get("alpha", 1.6732632423543772), attrs.get("gamma", 1.0507009873554805)
    return gamma * np.where(x <= 0, alpha * np.expm1(np.minimum(x, 0)), x)


@unary("ThresholdedRelu")
def _thresholded_relu(x: Array, attrs: Attrs) -> Array:
    return np.where(x > attrs.get("alpha", 1.0), x, 0)


@unary("HardSigmoid")
def _hard_sigmoid(x: Array, attrs: Attrs) -> Array:
    return np.clip(attrs.get("alpha", 0.2) * x + attrs.get("beta", 0.5), 0, 1)


@unary("Gelu")
def _gelu(x: Array, attrs: Attrs) -> Array:
    if attrs.get("approximate", "none") == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


@unary("Swish")
def _swish(x: Array, attrs: Attrs) -> Array:
    return x * _sigmoid(np.asarray(attrs.get("alpha", 1.0) * x).astype(x.dtype))


@implementation("SwiGLU")
def _swiglu(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b = np.asarray(inputs[0]), np.asarray(inputs[1])
    gate = widened(a)
    return np.asarray(_swish(gate, attrs) * widened(b)).astype(a.dtype)


@unary("Shrink")
def _shrink(x: Array, attrs: Attrs) -> Array:
    bias, lambd = attrs.get("bias", 0.0), attrs.get("lambd", 0.5)
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


@implementation("IsNaN")
def _is_nan(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.isnan(widened(np.asarray(inputs[0])))


@implementation("IsInf")
def _is_inf(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x = widened(np.asarray(inputs[0]))
    positive = np.isposinf(x) & bool(attrs.get("detect_positive", 1))
    return positive | (np.isneginf(x) & bool(attrs.get("detect_negative", 1)))


@implementation("Mod")
def _mod(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b = np.asarray(inputs[0]), np.asarray(inputs[1])
    function = np.fmod if attrs.get("fmod", 0) else np.mod
    return np.asarray(function(widened(a), widened(b))).astype(a.dtype)


@implementation("BitShift")
def _bit_shift(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    a, b = np.asarray(inputs[0]), np.asarray(inputs[1])
    shifted = np.left_shift(a, b) if attrs["direction"] == "LEFT" else np.right_shift(a, b)
    return np.where(b >= a.dtype.itemsize * 8, np.zeros((), a.dtype), shifted)


def _variadic(op: str, function: Callable[[Array, Array], Array], mean: bool = False) -> None:
    @implementation(op)
    def run(inputs: Inputs, attrs: Attrs, _: int) -> Array:
        arrays = [widened(np.asarray(a)) for a in inputs]
        total = reduce(function, arrays)
        return np.asarray(total / len(arrays) if mean else total).astype(np.asarray(inputs[0]).dtype)


_variadic("Max", np.maximum)
_variadic("Min", np.minimum)
_variadic("Sum", np.add)
_variadic("Mean", np.add, mean=True)


@implementation("Clip")
def _clip(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    x = np.asarray(inputs[0])
    low, high = get(inputs, 1), get(inputs, 2)
    result = x
    if low is not None:
        result = np.where(result < low, np.asarray(low, x.dtype), result)
    if high is not None:
        result = np.where(result > high, np.asarray(high, x.dtype), result)
    return result.astype(x.dtype)


@implementation("Where")
def _where(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.where(*inputs)


@implementation("IfMerge")
def _if_merge(inputs: Inputs, attrs: Attrs, _: int) -> Any:
    return inputs[1] if bool(np.asarray(inputs[0]).reshape(-1)[0]) else inputs[2]


_PACKED_INTEGERS = {np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2)}


def _power_of_two(x: Array, saturate: bool, mode: str) -> Array:
    """f8e8m0 of the magnitude of floats; `mode` says where numbers between two powers of two go."""
    fraction, exponent = np.frexp(np.abs(x).astype(np.float64))
    up = fraction > 0.5 if mode == "up" else fraction >= 0.75 if mode == "nearest" else np.zeros(x.shape, np.bool_)
    number = np.where(x == 0, 0, np.where(np.isinf(x), 255, exponent - 1 + up + 127))
    number = np.clip(number, 0, 254) if saturate else np.where((number < 0) | (number > 254), 255, number)
    return np.where(np.isnan(x), 255, number).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def cast(array: Array, target: np.dtype, saturate: bool = True, round_mode: str = "up") -> Array:
    """ONNX Cast: floats to integers truncate and saturate like the native kernels, strings are read and written.

    Integers of fewer than 8 bits keep the lowest bits of the number. `round_mode` is of use for f8e8m0 alone.
    """
    array = np.asarray(array)
    if target == np.dtype(object):
        return np.array([_float_text(v) for v in array.reshape(-1).tolist()], object).reshape(array.shape)
    if array.dtype.kind in "OUS":
        words = [str(v) for v in array.reshape(-1).tolist()]
        wide = [float(w) for w in words] if target.kind not in "iu" else [int(float(w)) for w in words]
        return np.array(wide).reshape(array.shape).astype(target)
    source = widened(array)
    if target == np.dtype(ml_dtypes.float8_e8m0fnu) and is_float(array):
        return _power_of_two(np.asarray(source), saturate, round_mode)
    if target in _PACKED_INTEGERS:
        finite = np.nan_to_num(source.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        bound: Any = ml_dtypes.iinfo(target)  # type: ignore[no-untyped-call]
        low_bits = (np.trunc(finite) - bound.min) % (1 << bound.bits) + bound.min
        return np.asarray(low_bits).astype(np.int64).astype(target)
    if is_float(array) and target.kind in "iu":
        info: Any = ml_dtypes.iinfo(target)  # type: ignore[no-untyped-call]
        low, high = float(info.min), float(info.max)
        whole = np.trunc(np.nan_to_num(source.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
        inside = np.clip(whole, low, high)
        top = inside >= high
        result = np.where(top, 0, inside).astype(np.int64 if info.bits < 64 or info.min < 0 else np.uint64)
        return np.where(top, info.max, result).astype(target)
    if target.itemsize == 1 and target in _SMALL_FLOATS and saturate:
        largest = float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
        source = np.where(
            np.isnan(source.astype(np.float64)), source, np.clip(source.astype(np.float64), -largest, largest)
        )
    return source.astype(target)


def _float_text(value: object) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "INF" if value > 0 else "-INF"
        return str(np.float32(value))
    return str(int(value)) if isinstance(value, bool) else str(value)


@implementation("Cast")
def _cast(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    target = from_onnx(int(attrs["to"])).numpy
    return cast(inputs[0], target, bool(attrs.get("saturate", 1)), attrs.get("round_mode", "up"))


@implementation("CastLike")
def _cast_like(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    target = np.asarray(inputs[1]).dtype
    return cast(inputs[0], target, bool(attrs.get("saturate", 1)), attrs.get("round_mode", "up"))


@implementation("BitCast")
def _bit_cast(inputs: Inputs, attrs: Attrs, _: int) -> Array:
    return np.asarray(inputs[0], order="C").view(from_onnx(int(attrs["to"])).numpy)
