"""ln(1 + t) and e**x - 1 in tile instructions, with the relative accuracy of their results also near 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from codegen.kernels.block_emitter import Operand
from tensor_types.dtypes import F64, DType

Apply: TypeAlias = Callable[..., Operand]
"""(instruction, operands...) -> its result in a new tile of one float dtype."""

_EDGE = 0.5
"""Up to here e**x - 1 is a series; beyond, the subtraction loses one bit."""
_TERMS, _TERMS_F64 = 9, 15
"""Terms of the series after which the rest is below the last place at `_EDGE`."""


def log1p(apply: Apply, t: Operand) -> Operand:
    """ln(1 + t) for finite t > -1: what rounding 1 + t has lost is given back to first order."""
    u = apply("TADD", t, 1.0)
    lost = apply("TSUB", t, apply("TSUB", u, 1.0))
    return apply("TADD", apply("TLOG", u), apply("TDIV", lost, u))


def expm1(apply: Apply, below: Callable[[Operand, float], Operand], x: Operand, dtype: DType) -> Operand:
    """e**x - 1; `below(a, limit)` tests a < limit."""
    count = _TERMS_F64 if dtype == F64 else _TERMS
    series = apply("TADD", apply("TMUL", x, 1.0 / count), 1.0)
    for k in range(count - 1, 1, -1):
        series = apply("TADD", apply("TMUL", apply("TMUL", x, 1.0 / k), series), 1.0)
    near = below(apply("TABS", x), _EDGE)
    return apply("TSEL", near, apply("TMUL", x, series), apply("TSUB", apply("TEXP", x), 1.0))
