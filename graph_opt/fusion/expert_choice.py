"""Reads how an exported mixture of experts says which tokens an expert gets, and with what weight.

    hit = Equal(indices[.., k], e);  weight = ReduceSum(weights * Cast(hit), -1)       the weight of expert e, or 0
    rows = NonZero(weight > 0)                                                         the tokens of expert e

Shape-only operators may stand anywhere between; with one choice a token, the sum and the axis k may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.ir import Node, Value
from graph_opt.ir.ops.registry import content_of
from tensor_types.dims import Dim

_RESHAPES = frozenset({"Squeeze", "Unsqueeze", "Reshape", "Flatten", "Identity"})
_ORDERED = _RESHAPES | {"Transpose", "Cast"}


@dataclass(frozen=True)
class Choice:
    """What one expert is given. `indices` [*tokens, k], or [*tokens] with k = 1, name the experts of each token.

    `weights`, like the indices, are how much each choice counts; None: what the tokens' choice alone decides.
    """

    indices: Value
    weights: Value | None
    expert: int
    tokens: tuple[Dim, ...]


def weight_of(value: Value | None) -> Choice | None:
    """The choice behind the weight of one expert for each token, 0 where it was not chosen; None for other values."""
    value = _stripped(value, _RESHAPES)
    node = value.producer if value is not None else None
    if node is None or value is None or value.shape is None:
        return None
    if node.op == "ReduceSum" and _over_last_axis(node):
        return _weighted(node.inputs[0], summed=True)
    one = len(value.shape) > 1 and value.shape[-1] == 1
    return _weighted(value, summed=one) if one or len(value.shape) == 1 else None


@dataclass(frozen=True)
class Tokens:
    """The tokens of one expert: `found` is the NonZero that lists them, `choice` says which they are.

    With weights in the choice, only tokens whose weight is above 0 count.
    """

    found: Node
    choice: Choice


def tokens_of(rows: Value | None) -> Tokens | None:
    """What the row numbers [n] or [n, 1] stand for, if they are the tokens of one expert."""
    value = _stripped(rows, _ORDERED)
    node = value.producer if value is not None else None
    if node is None or node.op != "NonZero" or value is None or value.shape is None or value.shape[0] != 1:
        return None
    used = _stripped(node.inputs[0], _RESHAPES)
    test = used.producer if used is not None else None
    if test is None or used is None:
        return None
    if test.op in ("Greater", "Less"):
        weight, zero = test.inputs if test.op == "Greater" else test.inputs[::-1]
        choice = weight_of(weight) if _is_zero(zero) else None
        return None if choice is None else Tokens(node, choice)
    choice = _any_hit(test.inputs[0] if test.op == "Cast" else used)
    return None if choice is None else Tokens(node, choice)


def _any_hit(value: Value | None) -> Choice | None:
    """Of a truth value, as a bool or a number, for each token: if one of its choices is the expert."""
    value = _stripped(value, _RESHAPES)
    node = value.producer if value is not None else None
    if node is not None and node.op == "ReduceMax" and _over_last_axis(node):
        return _hit(node.inputs[0], summed=True)
    choice = weight_of(value)
    return None if choice is None or choice.weights is not None else choice


def distinct_range(indices: Value) -> int | None:
    """One more than the largest index, if indices come from a TopK over the last axis and so differ in each token."""
    value = _stripped(indices, frozenset({"Identity", "Cast"}))
    node = value.producer if value is not None else None
    if node is None or node.op != "TopK" or value is not node.outputs[1]:
        return None
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is None or int(node.attrs.get("axis", -1)) not in (-1, len(shape) - 1):  # type: ignore[arg-type]
        return None
    return shape[-1] if isinstance(shape[-1], int) else None


def unreshaped(value: Value | None) -> Value | None:
    """The value before operators that change its shape alone."""
    return _stripped(value, _RESHAPES)


def is_zeros(value: Value | None) -> bool:
    """True for a tensor of zeros: a constant, or one that Expand or ConstantOfShape makes."""
    value = _stripped(value, _RESHAPES | {"Expand"})
    if value is None:
        return False
    if value.data is not None:
        return not value.data.any()
    if value.producer is None or value.producer.op != "ConstantOfShape":
        return False
    filler = value.producer.attrs.get("value")
    return filler is None or not np.any(filler)


def _weighted(value: Value | None, summed: bool) -> Choice | None:
    """Of weights * hit, where(hit, weights, 0) or hit alone; the last axis is that of choices if `summed`."""
    node = value.producer if value is not None else None
    if node is None or value is None:
        return None
    if node.op == "Mul":
        for weights, hit in (node.inputs, node.inputs[::-1]):
            choice = _hit(hit, summed)
            if choice is not None and weights is not None and weights.shape == choice.indices.shape:
                return Choice(choice.indices, weights, choice.expert, choice.tokens)
        return None
    if node.op == "Where" and _is_zero(node.inputs[2]):
        choice, weights = _hit(node.inputs[0], summed), node.inputs[1]
        if choice is not None and weights is not None and weights.shape == choice.indices.shape:
            return Choice(choice.indices, weights, choice.expert, choice.tokens)
        return None
    return _hit(value, summed)


def _hit(value: Value | None, summed: bool) -> Choice | None:
    """Of Cast(indices == e)."""
    value = _stripped(value, frozenset({"Cast", "Identity"}))
    node = value.producer if value is not None else None
    if node is None or node.op != "Equal":
        return None
    for indices, number in (node.inputs, node.inputs[::-1]):
        content = content_of(number) if number is not None and number.is_constant else None
        if content is None or len(content) != 1 or not isinstance(content[0], int):
            continue
        if indices is not None and indices.shape and indices.dtype.is_integer and indices.shape == node.output.shape:
            return Choice(indices, None, content[0], indices.shape[:-1] if summed else indices.shape)
    return None


def _over_last_axis(node: Node) -> bool:
    data, axes = node.inputs[0], node.input(1)
    content = content_of(axes) if axes is not None else None
    if data is None or data.shape is None or content is None or len(content) != 1:
        return False
    return content[0] in (-1, len(data.shape) - 1)


def _is_zero(value: Value | None) -> bool:
    return value is not None and value.data is not None and value.data.size == 1 and not value.data.any()


def _stripped(value: Value | None, ops: frozenset[str]) -> Value | None:
    """The value behind operators that keep the order of its elements (of a vector, so does Transpose)."""
    while value is not None and value.producer is not None and value.producer.op in ops:
        value = value.producer.inputs[0]
    return value
