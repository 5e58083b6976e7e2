"""Folds BatchNormalization into the convolution before it; what stands alone becomes Mul and Add.

Rules
1. Conv or ConvTranspose with constant weight (and bias), used only by a BatchNormalization with constant parameters:
   the weight is scaled per output channel and the bias shifted. Computed in float64, stored in the weight's dtype.
2. A grouped ConvTranspose keeps its BatchNormalization apart: its weight axis mixes groups.
3. Any other inference BatchNormalization becomes Mul and Add by per-channel constants, for the loop fusion to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.patterns import Declined, Match, OpPattern, Pattern, any_value, attribute, constant, op, optional
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from tensor_types import recipes

_CONV = op("Conv|ConvTranspose", any_value("x"), constant("weight"), optional(constant("bias")), name="conv")


def _normalised(of: Pattern) -> OpPattern:
    parameters = (constant(name) for name in ("gamma", "beta", "mean", "variance"))
    return op("BatchNormalization", of, *parameters, attrs={"training_mode": 0})


def _scale_and_shift(match: Match) -> tuple[np.ndarray, np.ndarray]:
    """The normalisation of a channel as x * scale + shift, in float64."""
    gamma, beta, mean, variance = (
        np.asarray(match[name].data, np.float64) for name in ("gamma", "beta", "mean", "variance")
    )
    scale = gamma / np.sqrt(variance + attribute(match.root, "epsilon"))  # type: ignore[operator]
    return scale, beta - mean * scale


def _fold(rewriter: Rewriter, match: Match) -> Declined | None:
    conv, weight, bias = match.node("conv"), match["weight"], match.get("bias")
    transposed = conv.op == "ConvTranspose"
    if transposed and attribute(conv, "group") != 1:
        return Declined(f"{conv} is grouped")
    scale, shift = _scale_and_shift(match)
    factor = scale.reshape([-1 if a == int(transposed) else 1 for a in range(weight.rank)])
    shifted = shift if bias is None else np.asarray(bias.data, np.float64) * scale + shift
    assert weight.recipe is not None
    scaled = recipes.scale(weight.recipe, recipes.Source(factor), weight.dtype)
    parameters = [
        rewriter.constant(scaled, f"{weight.name}/bn"),
        rewriter.constant(shifted.astype(weight.dtype.numpy), f"{weight.name}/bn_bias", weight.dtype),
    ]
    match.become(rewriter, conv.op, [match["x"], *parameters], conv.attrs, conv.name)
    return None


def _as_mul_add(rewriter: Rewriter, match: Match) -> Declined | None:
    x, root = match["x"], match.root
    if x.shape is None:
        return Declined(f"the rank of %{x.name} is not known")
    column = [-1] + [1] * (x.rank - 2)
    scale, shift = (
        rewriter.constant(data.reshape(column).astype(x.dtype.numpy), f"{root.output.name}/{name}", x.dtype)
        for data, name in zip(_scale_and_shift(match), ("scale", "shift"), strict=True)
    )
    scaled = match.insert(rewriter, "Mul", [x, scale], name=f"{root.name}/scale")
    match.become(rewriter, "Add", [scaled, shift], name=f"{root.name}/shift")
    return None


@dataclass(frozen=True)
class FuseConvBatchNorm(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-conv-bn"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("conv-bn", _normalised(_CONV), _fold),
        Rule("bn-mul-add", _normalised(any_value("x")), _as_mul_add),
    )
