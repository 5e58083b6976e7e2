"""Codes that exporters make numbers by Cast, Sub and Mul become DequantizeLinear, before constants are folded.

    Cast(codes) * scale, (Cast(codes) - zero) * scale           -> DequantizeLinear(codes, scale, zero) {axis}

1. Codes are a constant of integers of 8 bits at most, scale and zero constants.
2. The scale is one number or varies along one axis, the zero is one number or varies along the same axis.
3. Zeros are codes themselves. Their differences are exact, so the product rounds once, as DequantizeLinear defines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Value
from graph_opt.ir.patterns import Declined, Match, constant, one_of, op
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from tensor_types.dims import Dim
from tensor_types.dtypes import BF16, F16, F32, DType

_MOST_BITS = 8


def _is_codes(value: Value) -> bool:
    return value.dtype.is_integer and value.dtype.bits <= _MOST_BITS


_NUMBERS = op("Cast", constant("codes", _is_codes), shared=True)
_ZERO = one_of(op("Cast", constant("zero", _is_codes), shared=True), constant("zero"))
_SCALE = constant("scale")


def _dequantised(rewriter: Rewriter, match: Match) -> Declined | None:
    codes, scale, zero = match["codes"], match["scale"], match.get("zero")
    if scale.dtype not in (F32, F16, BF16):
        return Declined(f"the scale is {scale.dtype}")
    axes = {a for v in (scale, zero) if v is not None for a in _varying(v.shape or (), codes.rank)}
    if codes.shape != match.root.output.shape or len(axes) > 1:
        return Declined("scale and zero vary along several axes")
    (axis,) = axes or {0}
    zeros = None if zero is None else _whole(zero, codes.dtype)
    if zero is not None and zeros is None:
        return Declined("its zero is no code")
    assert scale.recipe is not None
    factors = np.asarray(scale.recipe.array()).reshape(-1)
    count = max(factors.size, 1 if zeros is None else zeros.size)
    shape = (count,) if axes else ()

    def parameter(data: np.ndarray, name: str) -> Value:
        return rewriter.constant(np.broadcast_to(data.reshape(data.shape if data.size > 1 else ()), shape), name)

    name = match.root.name or match.root.output.name
    operands = [codes, parameter(factors, f"{name}/scale")]
    if zeros is not None and zeros.any():
        operands.append(parameter(zeros, f"{name}/zero"))
    match.become(rewriter, "DequantizeLinear", operands, {"axis": axis})
    return None


def _varying(shape: Sequence[Dim], rank: int) -> list[int]:
    """Axes of a tensor of `rank` along which one of `shape` that broadcasts to it varies."""
    return [rank - len(shape) + i for i, extent in enumerate(shape) if extent != 1]


def _whole(zero: Value, dtype: DType) -> np.ndarray | None:
    """The zeros as codes in a row, None if they are none."""
    assert zero.recipe is not None
    numbers = np.asarray(zero.recipe.array()).reshape(-1)
    codes = numbers.astype(np.float32).astype(np.int32).astype(dtype.numpy)
    return codes if (codes.astype(np.float32) == numbers.astype(np.float32)).all() else None


@dataclass(frozen=True)
class FuseDequantisation(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-dequantisation"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("scaled codes", op("Mul", _NUMBERS, _SCALE), _dequantised),
        Rule("scaled codes less zero", op("Mul", op("Sub", _NUMBERS, _ZERO, shared=True), _SCALE), _dequantised),
    )
    near: ClassVar[int] = 4
    """Arithmetic on an input of integers looks alike as far as its Cast and misses nothing."""
