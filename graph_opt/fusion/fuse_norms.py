"""Recognises normalisations written in primitive operators.

    d = x - mean(x);  d / sqrt(mean(d*d) + eps)                           -> LayerNormalization
    x * k + (beta - mean(x) * k),  k = gamma / sqrt(mean(d*d) + eps)      -> LayerNormalization
    x / sqrt(mean(x*x) + eps)                                             -> RMSNormalization
    x / sqrt(sum(x*x) [+ eps])                                            -> RMSNormalization, scale 1 / sqrt(n)
    norm(x) * gamma, norm(x) + beta                                       -> scale and bias of the norm

Rules
1. A quotient may be a product with a reciprocal, a square x*x or x**2, a root sqrt or x**0.5; factors stand in any
   order. Casts around the square and the root go, since the kernel computes in f32 at least.
2. Trailing axes are reduced, and stay or are put back by a reshape. A mean may be a sum over the number of elements,
   a variance max(0, mean(x*x) - mean(x)**2). An L2 norm is over a static number of elements.
3. gamma and beta are constants of the shape of the normalised axes (leading ones allowed) or of one element; others
   stay behind as the kernel's epilogue.
4. Interior values have no other use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from graph_opt.fusion.reductions import divides, kept, mean_of, reduced, reduced_axes, restores
from graph_opt.ir.patterns import Declined, Match, Pattern, any_value, attribute, constant, maybe, one_of, op, scalar
from graph_opt.ir.products import product
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass
from tensor_types.dims import product as dim_product

_EPSILON = scalar(name="epsilon")


def _root(of: Pattern) -> Pattern:
    return maybe("Cast", one_of(op("Sqrt", of), op("Pow", of, scalar(0.5))))


def _deviation(variance: Pattern) -> Pattern:
    return _root(op("Add", variance, _EPSILON))


def _variance(of: Pattern) -> Pattern:
    return kept(mean_of(product(maybe("Cast", of), maybe("Cast", of)), "reduction"))


def _of_moments(keepdims: int) -> Pattern:
    """max(0, mean(x*x) - mean(x) * mean(x))."""
    mean = mean_of(_X, "mean")(keepdims)
    difference = op("Sub", mean_of(product(_X, _X), "reduction")(keepdims), product(mean, mean))
    return maybe("Max", difference, scalar(0.0))


_X, _GAMMA, _BETA = any_value("x"), constant("gamma"), constant("beta")
_MEAN = kept(mean_of(_X, "mean"))
_CENTRED = op("Sub", _X, _MEAN)
_SPREAD = _deviation(one_of(_variance(_CENTRED), kept(_of_moments)))
_RMS = _deviation(_variance(_X))
_REASSOCIATED = op(
    "Add",
    product(_X, _GAMMA, over=[_SPREAD]),
    op("Sub", _BETA, product(_MEAN, _GAMMA, over=[_SPREAD])),
)
_SQUARES = one_of(
    kept(reduced("ReduceSum", product(_X, _X), "reduction")), kept(reduced("ReduceSumSquare", _X, "reduction"))
)
_LENGTH = one_of(kept(reduced("ReduceL2", _X, "reduction")), _root(_SQUARES), _deviation(_SQUARES))


def _norm(operators: str, scale: Pattern) -> Pattern:
    return op(operators, _X, scale, name="norm")


def _normalise(operator: str, rewriter: Rewriter, match: Match, *, mean: bool = True) -> Declined | None:
    """A norm over the axes of the match's reduction; `mean=False`: the squares are summed."""
    x, reduction, epsilon = match["x"], match.node("reduction"), match.get("epsilon")
    axes = reduced_axes(reduction)
    if x.shape is None or not axes or axes != tuple(range(axes[0], x.rank)):
        return Declined(f"{reduction} is not over trailing axes")
    if "mean" in match.bindings and reduced_axes(match.node("mean")) != axes:
        return Declined("mean and variance are over different axes")
    if not restores(match, axes):
        return Declined("the reduced axes do not come back where they were")
    if not divides(match, axes):
        return Declined("a sum is not divided by the number of its elements")
    count = 1 if mean else dim_product(x.shape[axes[0] :])
    if not isinstance(count, int) or count == 0:
        return Declined("the number of elements is known at run time only")
    number = 0.0 if epsilon is None or epsilon.data is None else float(epsilon.data.reshape(()))
    return _become(rewriter, match, operator, axes[0] - x.rank, number / count, count**-0.5)


def _extend(rewriter: Rewriter, match: Match) -> Declined | None:
    """The norm takes gamma or beta in."""
    norm = match.node("norm")
    axis, epsilon = (attribute(norm, name) for name in ("axis", "epsilon"))
    return _become(rewriter, match, norm.op, int(axis) % match["x"].rank - match["x"].rank, float(epsilon))  # type: ignore[arg-type]


def _become(
    rewriter: Rewriter, match: Match, operator: str, axis: int, epsilon: float, scale: float = 1.0
) -> Declined | None:
    """One norm with the captured gamma and beta, or with this scale."""
    x, result = match["x"], match.root.output
    if x.shape is None or (x.dtype, x.shape) != (result.dtype, result.shape):
        return Declined("the result has another dtype or shape than its input")
    parameters: list[np.ndarray] = []
    for name, value in (("gamma", match.get("gamma")), ("beta", match.get("beta"))):
        if value is None or value.data is None:
            parameters += [np.asarray(scale)] if name == "gamma" else []
            continue
        own = () if value.data.size == 1 else value.data.shape[axis:]
        if value.data.size != 1 and (own != x.shape[axis:] or value.data.size != np.prod(own)):
            return Declined(f"%{value.name} is not one number per normalised element")
        parameters.append(value.data.reshape(own))
    inputs = [rewriter.constant(p.astype(x.dtype.numpy), f"{match.root.name}/parameter") for p in parameters]
    match.become(rewriter, operator, [x, *inputs], {"axis": axis, "epsilon": epsilon})
    return None


_layer = partial(_normalise, "LayerNormalization")
_rms = partial(_normalise, "RMSNormalization")


@dataclass(frozen=True)
class FuseNorms(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-norms"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("layer-norm", product(_CENTRED, over=[_SPREAD]), _layer),
        Rule("layer-norm", product(_CENTRED, _GAMMA, over=[_SPREAD]), _layer),
        Rule("layer-norm", _REASSOCIATED, _layer),
        Rule("rms-norm", product(_X, over=[_RMS]), _rms),
        Rule("rms-norm", product(_X, _GAMMA, over=[_RMS]), _rms),
        Rule("l2-norm", product(_X, over=[_LENGTH]), partial(_rms, mean=False)),
        Rule("norm-scale", op("Mul", _norm("LayerNormalization|RMSNormalization", scalar(1.0)), _GAMMA), _extend),
        Rule("norm-bias", op("Add", _norm("LayerNormalization", _GAMMA), _BETA), _extend),
    )
    near: ClassVar[int] = 4
