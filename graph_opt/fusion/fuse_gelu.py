"""Recognises GELU written in primitive operators.

    0.5 * x * (1 + erf(x / sqrt(2)))                                  -> Gelu(x)
    0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))          -> Gelu(x) {approximate="tanh"}
    0.5 * x * (1 + tanh(sqrt(2/pi) * x * (1 + 0.044715 * x**2)))      -> Gelu(x) {approximate="tanh"}

The factors may stand in any order and grouping, divisions by constants included; interior values have no other use.
SiLU, QuickGelu, HardSwish and Mish have no rule: written in primitives they become the same instructions of one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import ClassVar

from graph_opt.ir.patterns import Match, Pattern, any_value, op, scalar
from graph_opt.ir.products import Product, product
from graph_opt.ir.rewriter import Rewriter
from graph_opt.ir.rules import Rule, RulePass

_X = any_value("x")
_ROUNDING = 2e-3
"""Relative error of the irrational constants: bf16 rounds them, and people write four digits."""


def _gated(term: Pattern) -> Product:
    return product(op("Add", term, scalar(1.0)), _X, number=0.5)


def _tanh(*factors: Pattern) -> Product:
    return _gated(op("Tanh", product(*factors, number=(2 / pi) ** 0.5, tolerance=_ROUNDING)))


_ERF = _gated(op("Erf", product(_X, number=0.5**0.5, tolerance=_ROUNDING)))
_CUBIC = _tanh(op("Add", _X, product(_X, _X, _X, number=0.044715, tolerance=_ROUNDING)))
_FACTORED = _tanh(op("Add", product(_X, _X, number=0.044715, tolerance=_ROUNDING), scalar(1.0)), _X)


def _exact(rewriter: Rewriter, match: Match) -> None:
    match.become(rewriter, "Gelu", [match["x"]], {"approximate": "none"})


def _approximate(rewriter: Rewriter, match: Match) -> None:
    match.become(rewriter, "Gelu", [match["x"]], {"approximate": "tanh"})


@dataclass(frozen=True)
class FuseGelu(RulePass):
    """See the module."""

    name: ClassVar[str] = "fuse-gelu"
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("erf-gelu", _ERF, _exact),
        Rule("tanh-gelu", _CUBIC, _approximate),
        Rule("tanh-gelu", _FACTORED, _approximate),
    )
    near: ClassVar[int] = 4
