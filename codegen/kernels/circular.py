"""Circular and hyperbolic functions and their inverses in tile instructions, to a few units in the last place.

Odd functions keep the sign of zero; outside of a function's domain the result is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from codegen.kernels.block_emitter import Operand
from codegen.kernels.near_one import log1p
from tensor_types.dtypes import F64, DType


class Arithmetic(Protocol):
    """Instructions in one float dtype."""

    dtype: DType

    def __call__(self, op: str, *operands: Operand | float) -> Operand: ...

    def expm1(self, x: Operand) -> Operand: ...

    def test(self, a: Operand, mode: str, b: Operand | float) -> Operand: ...


_FAR = 1e9
"""From here on x + sqrt(x*x + 1) is 2*x in every dtype."""


def tan(m: Arithmetic, x: Operand) -> Operand:
    return m("TDIV", m("TSIN", x), m("TCOS", x))


def cosh(m: Arithmetic, x: Operand) -> Operand:
    # Half of the exponent first, so that the sum overflows only where cosh does.
    half = m("TEXP", m("TMUL", m("TABS", x), 0.5))
    return m("TADD", m("TMUL", m("TMUL", half, 0.5), half), m("TDIV", m("TRECIP", half), m("TMUL", half, 2.0)))


def sinh(m: Arithmetic, x: Operand) -> Operand:
    """Near 0 from e**x - 1, beyond as cosh."""
    less = m.expm1(x)
    near = m("TMUL", m("TADD", less, m("TDIV", less, m("TADD", less, 1.0))), 0.5)
    size = m("TABS", x)
    half = m("TEXP", m("TMUL", size, 0.5))
    far = m("TSUB", m("TMUL", m("TMUL", half, 0.5), half), m("TDIV", m("TRECIP", half), m("TMUL", half, 2.0)))
    return m("TSEL", m.test(size, "lt", 1.0), near, _signed(m, far, x))


def atan(m: Arithmetic, x: Operand) -> Operand:
    """A series in the tangent of half the angle, of the reciprocal beyond 1."""
    inner = m.test(m("TABS", x), "lt", 1.0)
    y = m("TSEL", inner, x, m("TRECIP", x))
    t = m("TDIV", y, m("TADD", m("TSQRT", m("TADD", m("TMUL", y, y), 1.0)), 1.0))
    square, count = m("TMUL", t, t), 22 if m.dtype == F64 else 10
    series: Operand = m("TMUL", square, (-1.0) ** count / (2 * count + 1))
    for k in range(count - 1, 0, -1):
        series = m("TMUL", m("TADD", series, (-1.0) ** k / (2 * k + 1)), square)
    angle = m("TMUL", m("TMUL", t, m("TADD", series, 1.0)), 2.0)
    right = m("TSEL", m.test(x, "lt", 0.0), -math.pi / 2, math.pi / 2)
    return m("TSEL", inner, angle, m("TSUB", right, angle))


def asin(m: Arithmetic, x: Operand) -> Operand:
    return atan(m, m("TDIV", x, m("TSQRT", m("TMUL", _from_one(m, x), m("TADD", x, 1.0)))))


def acos(m: Arithmetic, x: Operand) -> Operand:
    half = m("TSQRT", m("TDIV", _from_one(m, x), m("TADD", x, 1.0)))
    return m("TMUL", atan(m, half), 2.0)


def asinh(m: Arithmetic, x: Operand) -> Operand:
    size = m("TABS", x)
    square = m("TMUL", size, size)
    root = m("TADD", m("TSQRT", m("TADD", square, 1.0)), 1.0)
    near = log1p(m, m("TADD", size, m("TDIV", square, root)))
    return _odd(m, x, m("TSEL", m.test(size, "lt", _FAR), near, _log_of_twice(m, size)))


def acosh(m: Arithmetic, x: Operand) -> Operand:
    above = m("TSUB", x, 1.0)
    near = log1p(m, m("TADD", above, m("TSQRT", m("TMUL", above, m("TADD", x, 1.0)))))
    found = m("TSEL", m.test(x, "lt", _FAR), near, _log_of_twice(m, x))
    return m("TSEL", m.test(x, "lt", 1.0), math.nan, found)


def atanh(m: Arithmetic, x: Operand) -> Operand:
    size = m("TABS", x)
    rest = _from_one(m, size)
    near = log1p(m, m("TDIV", m("TADD", size, size), rest))
    far = m("TLOG", m("TDIV", m("TADD", size, 1.0), rest))
    return _odd(m, x, m("TMUL", m("TSEL", m.test(size, "lt", 0.5), near, far), 0.5))


def _from_one(m: Arithmetic, x: Operand) -> Operand:
    """1 - x."""
    return m("TADD", m("TNEG", x), 1.0)


def _log_of_twice(m: Arithmetic, x: Operand) -> Operand:
    return m("TADD", m("TLOG", x), math.log(2))


def _odd(m: Arithmetic, x: Operand, of_size: Operand) -> Operand:
    """An odd function that is x near 0, from what it is of |x|."""
    tiny = m.test(m("TABS", x), "lt", 1e-9 if m.dtype == F64 else 1e-5)
    return m("TSEL", tiny, x, _signed(m, of_size, x))


def _signed(m: Arithmetic, size: Operand, x: Operand) -> Operand:
    return m("TSEL", m.test(x, "lt", 0.0), m("TNEG", size), size)


FUNCTIONS: dict[str, Callable[[Arithmetic, Operand], Operand]] = {
    "Tan": tan, "Cosh": cosh, "Sinh": sinh, "Atan": atan, "Asin": asin, "Acos": acos, "Asinh": asinh, "Acosh": acosh,
    "Atanh": atanh,
}  # fmt: skip
