"""x / scale before a QuantizeLinear, where x is a sum of scaled codes: the scales are divided at convert time.

    sum * f / s                                   ->  sum * (f / s)
    ((a - za) * sa + (b - zb) * sb) / s           ->  a * (sa / s) + b * (sb / s) - (za * sa + zb * sb) / s

onnxruntime's kernels for quantised products and sums compute the same. The result may be the other neighbour of a tie
that f32 cannot hold; what comes from other operators is divided, as the definition says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.ir.core import Node, Value
from graph_opt.quantisation.arithmetic import QuantisedArithmetic
from tensor_types.dtypes import F32

_MOST_TERMS = 4
_LEAST, _GREATEST = 2.0**-100, 2.0**100
"""Factors within these limits neither overflow nor lose digits."""


@dataclass(frozen=True)
class _Sum:
    """The sum of terms, values times constants, and of a number."""

    terms: tuple[tuple[Value, np.ndarray], ...]
    number: float = 0.0


def rescaled(do: QuantisedArithmetic, x: Value, scale: Value) -> Value | None:
    """x / scale in f32, if x is a sum of codes, or of products of codes, times constants; else None."""
    if scale.data is None or scale.data.size != 1 or x.dtype != F32:
        return None
    step = float(scale.data.reshape(()))
    found = _sum(x)
    if found is None or not _LEAST < step < _GREATEST or len(found.terms) > _MOST_TERMS:
        return None
    factors = [f.astype(np.float64) / step for _, f in found.terms]
    if any(((abs(f) < _LEAST) | (abs(f) > _GREATEST)).any() for f in factors):
        return None
    total = None
    for (value, _), factor in zip(found.terms, factors, strict=True):
        term = do("Mul", value, do.constant(factor.astype(np.float32), "scale"))
        total = term if total is None else do("Add", total, term)
    assert total is not None
    return do("Add", total, found.number / step) if found.number else total


def _sum(value: Value) -> _Sum | None:
    node = value.producer
    if node is None or node.op not in ("Add", "Mul"):
        return None
    if node.op == "Add":
        parts = [_sum(v) if v is not None and len(v.uses) == 1 else None for v in node.inputs]
        left, right = parts
        if left is None or right is None or any(v.shape != value.shape for v in node.inputs if v is not None):
            return None
        return _Sum(left.terms + right.terms, left.number + right.number)
    return _scaled(node)


def _scaled(node: Node) -> _Sum | None:
    """(codes - zero) * factor."""
    for whole, factor in (node.inputs, node.inputs[::-1]):
        if whole is None or factor is None or factor.data is None or whole.shape != node.output.shape:
            continue
        numbers, zero = np.asarray(factor.data), 0.0
        inner = whole.producer
        if inner is not None and inner.op == "Sub" and numbers.size == 1:
            taken = inner.inputs[1]
            if taken is None or taken.data is None or taken.data.size != 1:
                return None
            zero, whole = float(taken.data.reshape(())), inner.inputs[0]
            inner = whole.producer if whole is not None else None
        source = inner.inputs[0] if inner is not None and inner.op == "Cast" else None
        if whole is None or source is None or not source.dtype.is_integer:
            return None
        return _Sum(((whole, numbers),), -zero * float(numbers.reshape(-1)[0]) if zero else 0.0)
    return None
