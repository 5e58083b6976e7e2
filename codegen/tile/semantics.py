"""What each instruction computes, on numpy arrays: the executable form of `codegen.tile.instructions`.

Functions take arrays of the operands' dtypes (immediates already converted) and give an array of the destination's
dtype. f16, bf16 and f8 arithmetic is done in f32 and rounded once; transcendental functions, sums and products are
done in f64 and rounded once, so native code is compared with the best result, not with another approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf
from typing import Any, TypeAlias

import numpy as np

from codegen.tile.instructions import code_shifts
from codegen.tile.ir import AttrValue
from tensor_types.dtypes import BOOL, F32, F64, DType

Array: TypeAlias = np.ndarray
Attrs: TypeAlias = Mapping[str, AttrValue]
Function: TypeAlias = Callable[..., Any]

_erf = np.frompyfunc(erf, 1, 1)


def _wide(a: Array) -> Array:
    """Floats below f32 as f32; everything else as it is."""
    return a if a.dtype.kind in "biu" or a.dtype in (np.float32, np.float64) else a.astype(np.float32)


def _in_f64(function: Function) -> Function:
    return lambda *args: function(*(a.astype(np.float64) for a in args))


def _truncating_divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = a // safe
    # numpy floors; one more where the exact quotient is negative and not whole.
    quotient = quotient + ((a - quotient * safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(a), quotient)


def _shift(a: Array, b: Array, left: bool) -> Array:
    width = a.dtype.itemsize * 8
    beyond = (b < 0) | (b >= width)
    amount = np.where(beyond, np.zeros_like(b), b)
    if left:
        return np.where(beyond, np.zeros_like(a), np.left_shift(a, amount))
    fill = np.where(a < 0, np.full_like(a, -1) if a.dtype.kind == "i" else a, np.zeros_like(a))
    return np.where(beyond, fill, np.right_shift(a, amount))


def _sigmoid(a: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-a)))


ELEMENTWISE: dict[str, Function] = {
    "TABS": np.abs,
    "TNEG": np.negative,
    "TEXP": _in_f64(np.exp),
    "TEXP2": _in_f64(np.exp2),
    "TLOG": _in_f64(np.log),
    "TSQRT": np.sqrt,
    "TRSQRT": lambda a: np.ones_like(a) / np.sqrt(a),
    "TRECIP": lambda a: np.ones_like(a) / a,
    "TRELU": lambda a: np.where(a < 0, np.zeros_like(a), a),
    "TTANH": _in_f64(np.tanh),
    "TSIGMOID": _in_f64(_sigmoid),
    "TERF": lambda a: _erf(a.astype(np.float64)).astype(np.float64),
    "TSIN": _in_f64(np.sin),
    "TCOS": _in_f64(np.cos),
    "TFLOOR": np.floor,
    "TCEIL": np.ceil,
    "TROUND": np.rint,
    "TTRUNC": np.trunc,
    "TSIGN": np.sign,
    "TNOT": np.invert,
    "TISNAN": np.isnan,
    "TISINF": np.isinf,
    "TADD": np.add,
    "TSUB": np.subtract,
    "TMUL": np.multiply,
    "TDIV": _truncating_divide,
    "TREM": np.mod,
    "TFMOD": np.fmod,
    "TMAX": np.maximum,
    "TMIN": np.minimum,
    "TPOW": _in_f64(np.power),
    "TAND": np.bitwise_and,
    "TOR": np.bitwise_or,
    "TXOR": np.bitwise_xor,
    "TSHL": lambda a, b: _shift(a, b, True),
    "TSHR": lambda a, b: _shift(a, b, False),
    "TSEL": np.where,
    "TFMA": lambda a, b, c: a * b + c,
}

COMPARE: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def elementwise(op: str, srcs: list[Array], attrs: Attrs, dtype: DType) -> Array:
    """The result of an element-wise instruction in `dtype`."""
    with np.errstate(all="ignore"):
        if op == "TCVT":
            return convert(srcs[0], dtype, bool(attrs.get("round")), bool(attrs.get("sat")))
        wide = [_wide(s) for s in srcs]
        if op == "TCMP":
            return np.asarray(COMPARE[str(attrs["mode"])](*wide))
        return np.asarray(ELEMENTWISE[op](*wide)).astype(dtype.numpy)


def convert(a: Array, dtype: DType, to_nearest: bool = False, saturate: bool = False) -> Array:
    """TCVT: `a` in another dtype."""
    with np.errstate(all="ignore"):
        wide = _wide(a)
        if dtype == BOOL:
            return np.asarray(wide != 0)
        if not dtype.is_integer:
            return wide.astype(dtype.numpy)
        # Sub-byte integers do not know np.iinfo.
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
        high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
        if wide.dtype.kind == "f":
            whole = np.rint(wide) if to_nearest else np.trunc(wide)
            inside = (whole >= float(low)) & (whole < float(high + 1))
            number = np.where(inside, whole, 0).astype(np.uint64 if dtype.bits == 64 and not low else np.int64)
            number = np.where(whole >= float(high + 1), number.dtype.type(high), number)
            return np.where(whole < float(low), number.dtype.type(low), number).astype(dtype.numpy)
        if wide.dtype.kind == "V":
            wide = wide.astype(np.int64)
        if saturate:
            wide = np.where(_above(wide, high), 0, wide) if not _holds(wide, high) else np.minimum(wide, high)
            wide = wide if not _holds(wide, low) else np.maximum(wide, low)
            return np.where(_above(a, high), np.array(high, dtype.numpy), wide.astype(dtype.numpy))
        if dtype.bits < 8:
            wide = (wide.astype(np.int64) - low) % (1 << dtype.bits) + low
        return wide.astype(dtype.numpy)


def _holds(a: Array, value: int) -> bool:
    if a.dtype.kind == "b":
        return 0 <= value <= 1
    info = np.iinfo(a.dtype)
    return int(info.min) <= value <= int(info.max)


def _above(a: Array, value: int) -> Array:
    return np.asarray(a > value) if a.dtype.kind != "b" else np.zeros(a.shape, bool)


def _least(a: Array, sign: int) -> Any:
    """The neutral element of maximum (sign 1) or minimum (-1) of an array's dtype."""
    if a.dtype.kind == "f":
        return a.dtype.type(-sign * np.inf)
    info = np.iinfo(a.dtype)
    return a.dtype.type(info.min if sign > 0 else info.max)


def reduce(op: str, src: Array, attrs: Attrs, dtype: DType, held: Array | None) -> Array:
    """The reduction over `axes`, which keep extent 1; `held` is what dst holds if the instruction accumulates."""
    axes = attrs["axes"]
    assert isinstance(axes, tuple)
    fold: np.ufunc
    with np.errstate(all="ignore"):
        a = _wide(src)
        if op in ("TROWARGMAX", "TROWARGMIN"):
            return _argument(a, axes[0], 1 if op == "TROWARGMAX" else -1, bool(attrs.get("last"))).astype(dtype.numpy)
        if op in ("TROWSUM", "TROWPROD"):
            fold = np.add if op == "TROWSUM" else np.multiply
            exact = np.float64 if a.dtype.kind == "f" else a.dtype
            result = fold.reduce(a, axis=axes, keepdims=True, dtype=exact)
            if held is not None:
                result = fold(held.astype(exact), result)
            return np.asarray(result).astype(dtype.numpy)
        sign = 1 if op == "TROWMAX" else -1
        if attrs.get("nan"):
            fold = np.maximum if sign > 0 else np.minimum
        else:
            fold = np.fmax if sign > 0 else np.fmin
        neutral = _least(a, sign)
        # fmax(-inf, NaN) is -inf, so NaN elements drop out.
        result = fold.reduce(a, axis=axes, keepdims=True, initial=neutral)
        if held is not None:
            result = fold(_wide(held), result)
            if not attrs.get("nan"):
                result = fold(neutral, result)
        return np.asarray(result).astype(dtype.numpy)


def _argument(a: Array, axis: int, sign: int, last: bool) -> Array:
    """First (or last) index of the extreme; NaN elements are skipped; 0 if none is left."""
    if not a.shape[axis]:
        return np.zeros([1 if i == axis else n for i, n in enumerate(a.shape)], np.int64)
    best = (np.fmax if sign > 0 else np.fmin).reduce(a, axis=axis, keepdims=True)
    hit = a == best
    if not last:
        return np.asarray(np.argmax(hit, axis=axis, keepdims=True))
    place = a.shape[axis] - 1 - np.argmax(np.flip(hit, axis), axis=axis, keepdims=True)
    return np.where(hit.any(axis=axis, keepdims=True), place, 0)


def scan(src: Array, attrs: Attrs, dtype: DType) -> Array:
    """TCUMSUM: the running sum along `axis`."""
    axis = attrs["axis"]
    assert isinstance(axis, int)
    with np.errstate(all="ignore"):
        a = _wide(src)
        a = a.astype(np.float64) if a.dtype.kind == "f" else a
        if attrs.get("reverse"):
            a = np.flip(a, axis)
        total = np.cumsum(a, axis=axis, dtype=a.dtype)
        if attrs.get("exclusive"):
            head = (slice(None),) * axis
            total = np.concatenate(
                [np.zeros_like(total[(*head, slice(0, 1))]), total[(*head, slice(0, -1))]], axis=axis
            )
        return (np.flip(total, axis) if attrs.get("reverse") else total).astype(dtype.numpy)


def matmul(a: Array, b: Array, contracted: int, dtype: DType, held: Array | None, bits: int = 0) -> Array:
    """a[m.., k..] @ b[k.., n] over the last `contracted` axes of `a`, plus `held`; b in words of codes of `bits`."""
    if bits:
        shifts = np.array(code_shifts(bits), np.uint32).reshape(-1, 1)
        b = np.expand_dims(b, -2) >> shifts & np.uint32((1 << bits) - 1)
    exact = np.float64 if dtype in (F32, F64) else np.int64
    with np.errstate(all="ignore"):
        result = np.tensordot(a.astype(exact), b.astype(exact), axes=contracted)
        if held is not None:
            result = result + held.astype(exact)
        return np.asarray(result).astype(dtype.numpy)


SCATTER: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
