"""A small set of exact rewrites of arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import replace_nodes
from tensor_types.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, DType

_SMALL = frozenset({BOOL, I8, U8, I16, U16})
_HOLDS: dict[DType, frozenset[DType]] = {
    F64: _SMALL | {F32, F16, BF16, I32, U32},
    F32: _SMALL | {F16, BF16},
    I64: _SMALL | {I32, U32},
    I32: _SMALL,
}
"""dtype -> dtypes all of whose values it holds exactly."""

_LARGEST = 1 << 16
"""Elements of a constant that is worth adding to another one now."""


@dataclass(frozen=True)
class SimplifyArithmetic:
    """Rewrites that give the same bits with less work.

    1. x ** 2 is x * x.
    2. Division by a power of two is multiplication by its inverse.
    3. Neg of Neg and Not of Not are what they started from.
    4. A Cast of a Cast that lost nothing is one Cast, or none.
    5. Where with a constant condition of one value is that branch, when its shape is the result's.
    6. Additions of two integer constants, one behind the other, are one: both wrap.
    """

    name: ClassVar[str] = "simplify-arithmetic"

    def apply(self, graph: Graph) -> bool:
        return replace_nodes(graph, _simpler)


def _simpler(rewriter: Rewriter, node: Node) -> Value | None:
    new = _shorter(node) or _other_operator(rewriter, node)
    return new if new is not None and new.dtype == node.output.dtype else None


def _shorter(node: Node) -> Value | None:
    """An existing value that the node's output equals."""
    x = node.input(0)
    if node.op in ("Neg", "Not") and x is not None and x.producer is not None and x.producer.op == node.op:
        return x.producer.inputs[0]
    if node.op == "Cast" and (source := _exact_source(node)) is not None and source.dtype == node.output.dtype:
        return source
    if node.op == "Where" and x is not None and x.data is not None and x.data.size:
        chosen = node.inputs[1] if x.data.all() else node.inputs[2] if not x.data.any() else None
        return chosen if chosen is not None and chosen.shape == node.output.shape else None
    return None


def _exact_source(node: Node) -> Value | None:
    """What was cast before this Cast, if the first one lost nothing."""
    x = node.inputs[0]
    source = None if x is None or x.producer is None or x.producer.op != "Cast" else x.producer.inputs[0]
    return source if x is not None and source is not None and source.dtype in _HOLDS.get(x.dtype, ()) else None


def _other_operator(rewriter: Rewriter, node: Node) -> Value | None:
    """The output of a cheaper node, inserted before this one."""
    x, y = node.input(0), node.input(1)
    if node.op == "Cast" and (source := _exact_source(node)) is not None:
        return _insert(rewriter, node, "Cast", [source], node.attrs)
    if (added := _added(node)) is not None:
        return _together(rewriter, node, *added)
    if x is None or y is None or y.recipe is None or y.recipe.size != 1 or x.shape != node.output.shape:
        return None
    data = y.recipe.array()
    number = float(data.reshape(-1)[0]) if y.dtype.is_float or y.dtype.is_integer else 0.0
    if node.op == "Pow" and number == 2 and x.dtype.is_float:
        return _insert(rewriter, node, "Mul", [x, x])
    if node.op == "Div" and x.dtype in (F32, F64) and _invertible(number):
        inverse = rewriter.constant(np.asarray(1 / data, data.dtype), f"{y.name}.inverse")
        return _insert(rewriter, node, "Mul", [x, inverse])
    return None


def _added(node: Node) -> tuple[Value, np.ndarray] | None:
    """What an addition of an integer constant adds to, and the constant."""
    if node.op not in ("Add", "Sub") or not node.output.dtype.is_integer:
        return None
    x, y = node.inputs
    if node.op == "Add" and x is not None and x.is_constant:
        x, y = y, x
    if x is None or y is None or x.is_constant or y.recipe is None or y.recipe.size > _LARGEST:
        return None
    constant = np.asarray(y.recipe.array())
    return x, constant if node.op == "Add" else np.negative(constant)


def _together(rewriter: Rewriter, node: Node, x: Value, constant: np.ndarray) -> Value | None:
    """x + constant, where x is such a sum itself that nothing else reads."""
    before = None if x.producer is None else _added(x.producer)
    if before is None or len(x.uses) > 1 or rewriter.graph.is_output(x) or before[0].shape != node.output.shape:
        return None
    total = (before[1][None] + constant[None])[0]  # numpy warns of numbers that wrap, not of arrays
    amount = rewriter.constant(total, f"{node.output.name}/constant")
    return _insert(rewriter, node, "Add", [before[0], amount])


def _invertible(number: float) -> bool:
    """Whether the number is a power of two far from the ends of the exponent range, so that its inverse is exact."""
    return bool(np.isfinite(number)) and abs(np.frexp(number)[0]) == 0.5 and 2.0**-100 < abs(number) < 2.0**100


def _insert(
    rewriter: Rewriter, node: Node, op: str, inputs: list[Value | None], attrs: dict[str, AttrValue] | None = None
) -> Value:
    return rewriter.insert(op, inputs, attrs, before=node, outputs=[node.output.name], name=node.name).output
