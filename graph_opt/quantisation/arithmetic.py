"""Quantisation parameters and the steps that quantised operators consist of."""

from __future__ import annotations

import math

import numpy as np

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Value
from tensor_types.dtypes import I8, I16, I32, U8, U16, DType

CODES = frozenset({I8, U8, I16, U16})
"""Quantised dtypes that f32 holds exactly."""


class QuantisedArithmetic(Arithmetic):
    """Arithmetic with scales, zero points and codes."""

    def parameter(self, value: Value, dtype: DType, rank: int, axis: int) -> Value:
        """A scale or zero point as an operand of a tensor: one number, or a vector along `axis`."""
        assert value.shape is not None
        wide = self.cast(value, dtype)
        if all(d == 1 for d in value.shape):
            return self.reshape(wide, ())
        return self.reshape(wide, [-1 if i == axis % rank else 1 for i in range(rank)])

    def quantized(self, ratio: Value, zero: Value | None, dtype: DType, least: float = -math.inf) -> Value:
        """round(max(ratio, least)) + zero, ties to even, saturated: the last steps of QuantizeLinear.

        `zero` is f32, `least` a whole number. By way of i32, which is how vector units narrow.
        """
        low, high = bounds(dtype)
        known = 0.0 if zero is None or is_zero(zero) else _number(zero)
        if known is not None:
            # What is clipped and rounded is one instruction away from integers, where the zero point is added.
            clipped = self("Clip", ratio, max(low - known, least), high - known)
            whole = self("Cast", self("Round", clipped), to=I32.onnx)
            return self("Cast", self("Add", whole, known) if known else whole, to=dtype.onnx)
        if least > -math.inf:
            ratio = self("Max", ratio, least)
        whole = self("Clip", self("Add", self("Round", ratio), zero), low, high)
        return self("Cast", self("Cast", whole, to=I32.onnx), to=dtype.onnx)


def _number(value: Value) -> float | None:
    """The number that a constant of one element is."""
    return None if value.data is None or value.data.size != 1 else float(value.data.reshape(()))


def bounds(dtype: DType) -> tuple[float, float]:
    """Least and greatest number of an integer dtype."""
    info = np.iinfo(dtype.numpy)
    return float(info.min), float(info.max)


def is_zero(value: Value | None) -> bool:
    """True for an absent zero point and for constants that are 0 everywhere."""
    return value is None or (value.data is not None and not np.asarray(value.data).any())


def is_single(value: Value | None) -> bool:
    """True if the parameter is absent or one number for the whole tensor."""
    return value is None or (value.shape is not None and all(d == 1 for d in value.shape))
