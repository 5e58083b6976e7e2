"""Reductions as pieces of patterns, with reduced axes that stay, or that go and are put back later."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes

from graph_opt.ir import Node, Value
from graph_opt.ir.patterns import Match, Pattern, any_value, constant, one_of, op, optional, scalar
from tensor_types.dims import product

_AXES = constant(what="the axes")
_RESTORING = "Reshape|Unsqueeze"


def kept(piece: Callable[[int], Pattern]) -> Pattern:
    """`piece(keepdims)` at an extent of 1 along the reduced axes; what puts them back must be checked by `restores`."""
    return one_of(piece(1), op(_RESTORING, piece(0), optional(any_value())))


def reduced(operator: str, of: Pattern, name: str) -> Callable[[int], Pattern]:
    """A reduction over axes that a constant names."""
    return lambda keepdims: op(operator, of, _AXES, name=name, attrs={"keepdims": keepdims})


def mean_of(of: Pattern, name: str) -> Callable[[int], Pattern]:
    """A mean, or a sum over a number that must be checked by `divides`: ReduceSum * `part` or ReduceSum / `count`."""

    def piece(keepdims: int) -> Pattern:
        total = reduced("ReduceSum", of, name)(keepdims)
        parts = op("Mul", total, scalar(name="part")), op("Div", total, scalar(name="count"))
        return one_of(reduced("ReduceMean", of, name)(keepdims), *parts)

    return piece


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The reduced axes in order, counted from the front; none where they are not known."""
    source, axes = node.input(0), node.input(1)
    if source is None or source.shape is None or axes is None or axes.data is None:
        return ()
    return tuple(sorted(int(a) % source.rank for a in axes.data.reshape(-1)))


def restores(match: Match, axes: tuple[int, ...]) -> bool:
    """Whether what is put back in the match are these axes of `x`."""
    shape = tuple(1 if k in axes else d for k, d in enumerate(match["x"].shape or ()))
    return all(n.output.shape == shape for n in match.nodes if n.op in _RESTORING.split("|"))


def divides(match: Match, axes: tuple[int, ...]) -> bool:
    """Whether sums of the match are divided by the number of elements along these axes of `x`."""
    count = product((match["x"].shape or ())[a] for a in axes)
    for name, power in (("part", -1), ("count", 1)):
        value = match.get(name)
        if value is None or value.data is None:
            continue
        # Off by no more than the constant's own rounding: n - 1 elements are another variance.
        wanted, rounding = float(count) ** power if isinstance(count, int) and count else 0.0, _epsilon(value)
        if abs(float(value.data.reshape(())) - wanted) > rounding * wanted:
            return False
    return True


def _epsilon(value: Value) -> float:
    return float(ml_dtypes.finfo(value.dtype.numpy).eps) if value.dtype.is_float else 0.0
