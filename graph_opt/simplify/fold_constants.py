"""Nodes whose inputs are constants are computed at convert time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graph_opt.ir import ops
from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.constant_recipes import Evaluate, recipe_of
from graph_opt.simplify.scopes import control_graphs, replaceable
from tensor_types.errors import InvalidModel, ResourceLimit, UnsupportedOperator
from tensor_types.recipes import SMALL, Recipe, Source


@dataclass(frozen=True)
class FoldConstants:
    """Replaces nodes of constant inputs by constants.

    1. The operator is deterministic, has no subgraph and is none of `keep`.
    2. No result has more than `limit` bytes, unless it is no larger than the inputs.
    3. Results of another dtype or shape than inference says are not taken.
    4. A node that cannot be computed stays: it is an error of the run, if a run gets to it.
    5. What is big and can be said as a recipe is not computed before it is written.
    DequantizeLinear is kept: it says how a weight is stored, which integer kernels want to know.
    """

    evaluate: Evaluate
    limit: int = 1 << 20
    keep: frozenset[str] = frozenset({"DequantizeLinear", "Identity", "Fused", "Relayout"})
    name: ClassVar[str] = "fold-constants"

    def apply(self, graph: Graph) -> bool:
        return any([self._fold(part) for part in control_graphs(graph)])

    def _fold(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        folded = [node for node in list(graph.nodes) if self._foldable(node) and self._replace(rewriter, node)]
        return rewriter.erase_dead(folded)

    def _foldable(self, node: Node) -> bool:
        op = ops.get(node.op)
        if op is None or not op.deterministic or op.kind == "control" or node.subgraphs or node.op in self.keep:
            return False
        if not all(v is None or v.is_constant for v in node.inputs):
            return False
        known = _known_bytes(node)
        return not any(v.is_static and _bytes(v.shape, v.dtype.bytes) > max(self.limit, known) for v in node.outputs)

    def _replace(self, rewriter: Rewriter, node: Node) -> bool:
        graph = rewriter.graph
        known = _known_bytes(node)
        recipe = recipe_of(node, self.evaluate) if known > SMALL else None
        try:
            results = self._results(node) if recipe is None else [recipe]
        except (UnsupportedOperator, InvalidModel, ResourceLimit):
            return False  # a run that needs it says so, with the node
        changed = False
        for value, result in zip(node.outputs, results, strict=False):
            if not isinstance(result, np.ndarray | np.generic | Recipe):
                continue
            data = result if isinstance(result, Recipe) else Source(np.asarray(result))
            fits = value.shape is None or not value.is_static or value.shape == data.shape
            if not fits or data.nbytes > max(self.limit, known) or data.dtype != value.dtype:
                continue
            constant = graph.add_constant(value.name, data, value.dtype)
            if replaceable(graph, value, constant):
                rewriter.replace(value, constant, "folded")
                changed = True
            else:
                del graph.values[constant.name]
        return changed

    def _results(self, node: Node) -> Sequence[Any]:
        inputs = [None if v is None else v.data for v in node.inputs]
        return self.evaluate(node.op, node.attrs, inputs, len(node.outputs))


def _known_bytes(node: Node) -> int:
    return sum(v.recipe.nbytes for v in node.inputs if v is not None and v.recipe is not None)


def _bytes(shape: Any, size: int) -> int:
    for extent in shape:
        size *= extent
    return size
