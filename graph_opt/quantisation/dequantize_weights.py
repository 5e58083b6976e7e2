"""DequantizeLinear of a constant becomes the float constant, for the operators that no integer kernel computes.

Runs after the passes that use the codes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graph_opt.ir.core import Graph
from graph_opt.ir.rewriter import Rewriter
from tensor_types.errors import UnsupportedOperator

Evaluate = Callable[[str, Mapping[str, Any], Sequence[np.ndarray | None], int], Sequence[Any]]


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
            data = [None if v is None else v.data for v in node.inputs]
            try:
                (result,) = self.evaluate(node.op, node.attrs, data, 1)
            except UnsupportedOperator:
                continue
            constant = graph.add_constant(f"{node.output.name}", np.asarray(result), node.output.dtype)
            rewriter.replace(node.output, constant, "folded")
            folded.append(node)
        return rewriter.erase_dead(folded)
