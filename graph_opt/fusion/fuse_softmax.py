"""Recognises softmax written in primitive operators.

    e = exp(x [- max(x)]);  e / sum(e)             -> Softmax(x)
    x [- max(x)] - log(sum(exp(x [- max(x)])))     -> LogSoftmax(x)

Rules
1. Maximum and sum are over the same single axis, which stays or is put back by a reshape. Without the maximum the two
   differ only where the exponentials overflow: Softmax then gives the limit.
2. The quotient may be a product with a reciprocal, the logarithm of the sum a ReduceLogSumExp.
3. Interior values have no other use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from graph_opt.fusion.reductions import kept, reduced, reduced_axes, restores
from graph_opt.ir.patterns import Declined, Match, OpPattern, Pattern, any_value, one_of, op
from graph_opt.ir.products import product
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass

_X = any_value("x")
_SHIFTED = op("Sub", _X, kept(reduced("ReduceMax", _X, "largest")))
_POWER = op("Exp", one_of(_SHIFTED, _X), name="power")
_SUM = kept(reduced("ReduceSum", _POWER, "sum"))


def _minus_log_sum(of: Pattern) -> OpPattern:
    """`of` is on both sides: with the maximum taken off one of them alone, it is another function."""
    total = kept(reduced("ReduceSum", op("Exp", of), "sum"))
    return op("Sub", of, one_of(op("Log", total), kept(reduced("ReduceLogSumExp", of, "sum"))))


def _softmax(operator: str, rewriter: Rewriter, match: Match) -> Declined | None:
    axes = reduced_axes(match.node("sum"))
    if len(axes) != 1:
        return Declined(f"{match.node('sum')} is not over one axis")
    if "largest" in match.bindings and reduced_axes(match.node("largest")) != axes:
        return Declined("maximum and sum are over different axes")
    if not restores(match, axes):
        return Declined("the reduced axis does not come back where it was")
    match.become(rewriter, operator, [match["x"]], {"axis": axes[0] - match["x"].rank})
    return None


@dataclass(frozen=True)
class FuseSoftmax(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-softmax"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("softmax", product(_POWER, over=[_SUM]), partial(_softmax, "Softmax")),
        Rule("log-softmax", _minus_log_sum(_SHIFTED), partial(_softmax, "LogSoftmax")),
        Rule("log-softmax", _minus_log_sum(_X), partial(_softmax, "LogSoftmax")),
    )
    near: ClassVar[int] = 4
