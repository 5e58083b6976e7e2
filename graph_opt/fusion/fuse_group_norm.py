"""Writes group normalisation as the layer normalisation of its groups, for which there is a kernel.

    GroupNormalization(x, gamma, beta)                                                 x: [N, C, ...]
    Reshape(InstanceNormalization(Reshape(x, [N, G, ...]), 1, 0), [N, C, ...]) * gamma + beta
      -> Reshape(LayerNormalization(Reshape(x, [N, G, C/G, -1]), gamma, beta), [N, C, ...])
    activation(Reshape(LayerNormalization(...)))  ->  Reshape(activation(LayerNormalization(...)))

Rules
1. Channels and groups are static; the groups of the second form are whole neighbouring channels of one sample.
2. gamma and beta are one number per channel; they are seen as [G, C/G, 1], which broadcasts over a group.
3. An activation goes before the reshape, where it is the norm's epilogue: SiLU in primitives, or one operator.
4. Interior values have no other use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import Value
from graph_opt.ir.patterns import Declined, Match, any_value, attribute, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass

_X, _GAMMA, _BETA = any_value("x"), any_value("gamma"), any_value("beta")
_TARGET = optional(any_value())


def _all(number: float) -> Callable[[Value], bool]:
    return lambda value: value.data is not None and bool((value.data == number).all())


_NORM = op(
    "InstanceNormalization",
    op("Reshape", _X, _TARGET, name="grouped"),
    any_value(where=_all(1.0), what="a scale of ones"),
    any_value(where=_all(0.0), what="a bias of zeros"),
    name="norm",
)
_EXPORTED = op("Add", op("Mul", op("Reshape", _NORM, _TARGET), _GAMMA), _BETA)
_LAYER = op("LayerNormalization", any_value(), more=True, name="layer")
_BACK = op("Reshape", _LAYER, any_value("target"), name="back")


def _per_group(rewriter: Rewriter, match: Match) -> Declined | None:
    x, norm = match["x"], match.node("norm")
    if x.shape is None or x.rank < 2 or match.root.output.shape != x.shape:
        return Declined("the result has another shape than its input")
    samples, channels, *rest = x.shape
    groups: object = attribute(norm, "num_groups")
    if "grouped" in match.bindings:
        shape = match.node("grouped").output.shape
        groups = shape[1] if shape is not None and len(shape) > 2 and shape[0] == samples else None
    if not isinstance(channels, int) or not isinstance(groups, int) or groups < 1 or channels % groups:
        return Declined("its groups are not so many whole channels, known when converting")
    column = (channels,) if norm is match.root else (channels, *(1 for _ in rest))
    parameters = [match["gamma"], match["beta"]]
    for value in parameters:
        if value.shape is None or value.shape != (1,) * (value.rank - len(column)) + column:
            return Declined(f"%{value.name} is not one number per channel")

    def reshape(value: Value, *extents: int) -> Value:
        target = rewriter.constant(np.array(extents, np.int64), f"{match.root.name}/target")
        return match.insert(rewriter, "Reshape", [value, target])

    per_channel = [reshape(v, groups, channels // groups, 1) for v in parameters]
    inputs = [reshape(x, 0, groups, channels // groups, -1), *per_channel]
    attrs = {"axis": 2, "epsilon": attribute(norm, "epsilon")}
    layer = match.insert(rewriter, "LayerNormalization", inputs, attrs)
    match.become(rewriter, "Reshape", [layer, match.insert(rewriter, "Shape", [x])], {"allowzero": 1})
    return None


def _activate(rewriter: Rewriter, match: Match) -> None:
    layer, root = match.node("layer").output, match.root
    gates = [match.insert(rewriter, "Sigmoid", [layer])] if root.op == "Mul" else []
    activated = match.insert(rewriter, root.op, [layer, *gates], root.attrs)
    match.become(rewriter, "Reshape", [activated, match["target"]], match.node("back").attrs)


@dataclass(frozen=True)
class FuseGroupNorm(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-group-norm"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("group-norm", op("GroupNormalization", _X, _GAMMA, _BETA, name="norm"), _per_group),
        Rule("group-norm", _EXPORTED, _per_group),
        Rule("norm-activation", op("Mul", _BACK, op("Sigmoid", _BACK)), _activate),
        Rule("norm-activation", op("Gelu|HardSwish|Mish|Relu|Swish", _BACK), _activate),
    )
    near: ClassVar[int] = 3
