"""DequantizeLinear of a constant becomes the float constant, for the operators that no integer kernel computes.

Runs after the passes that use the codes themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.constant_recipes import Evaluate
from tensor_types.dtypes import BF16, F16, F32
from tensor_types.errors import UnsupportedOperator
from tensor_types.recipes import Recipe, reshape, scale

_EXACT_BITS = 8
"""Codes whose difference to a zero point, times a factor, f32 rounds once, as f64 does."""


@dataclass(frozen=True)
class DequantizeWeights:
    """See the module. `evaluate` computes an operator: op, attributes, inputs, number of outputs -> results."""

    evaluate: Evaluate
    name: ClassVar[str] = "dequantize-weights"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        folded = []
        for node in list(graph.nodes):
            inputs = [v for v in node.inputs if v is not None]
            if node.op != "DequantizeLinear" or not all(v.is_constant for v in inputs):
                continue
            result = _scaled(node) or self._evaluated(node)
            if result is None:
                continue
            constant = graph.add_constant(node.output.name, result, node.output.dtype)
            rewriter.replace(node.output, constant, "folded")
            folded.append(node)
        return rewriter.erase_dead(folded)

    def _evaluated(self, node: Node) -> np.ndarray | None:
        try:
            (result,) = self.evaluate(node.op, node.attrs, [None if v is None else v.data for v in node.inputs], 1)
        except UnsupportedOperator:
            return None
        return np.asarray(result)


def _scaled(node: Node) -> Recipe | None:
    """The constant as a recipe over the codes; None where f64 does not give what the operator defines bit for bit."""
    codes, factor, zero = (None if v is None else v.recipe for v in (*node.inputs, None)[:3])
    if codes is None or factor is None or codes.dtype.bits > _EXACT_BITS or node.output.dtype not in (F32, F16, BF16):
        return None
    block, axis = int(node.attrs.get("block_size") or 0), int(node.attrs.get("axis", 1))  # type: ignore[call-overload]
    shape = list(factor.shape)
    if not block:
        shape = [1] * len(codes.shape)
        if factor.size > 1:
            shape[axis % len(shape)] = factor.size
    try:
        zeros = None if zero is None else reshape(zero, shape)
        return scale(codes, reshape(factor, shape), node.output.dtype, zeros, block or 1)
    except ValueError:
        return None
