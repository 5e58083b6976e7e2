"""Equal nodes and equal small constants are kept once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import ops
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs, replaceable


@dataclass(frozen=True)
class EliminateCommonSubexpressions:
    """A node with the operator, attributes and inputs of an earlier one goes; so does a repeated small constant.

    Nodes under different guards differ: only one of them may run. Operators that draw random numbers stay. A Shape is
    its extents, whosever they are.
    """

    limit: int = 4096
    """Constants of more bytes are not compared."""
    name: ClassVar[str] = "eliminate-common-subexpressions"

    def apply(self, graph: Graph) -> bool:
        return any([self._merge(part) for part in control_graphs(graph)])

    def _merge(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        changed = self._merge_constants(rewriter)
        seen: dict[Hashable, Node] = {}
        gone: list[Node] = []
        for node in list(graph.nodes):
            key = _key(node)
            if key is None:
                continue
            first = seen.setdefault(key, node)
            pairs = list(zip(node.outputs, first.outputs, strict=True))
            if first is not node and all(_mergeable(graph, old, new) for old, new in pairs):
                for old, new in pairs:
                    rewriter.replace(old, new, "same")
                gone.append(node)
        rewriter.erase_dead(gone)
        return changed or bool(gone)

    def _merge_constants(self, rewriter: Rewriter) -> bool:
        graph, changed = rewriter.graph, False
        first: dict[Hashable, Value] = {}
        for value in graph.constants():
            recipe = value.recipe
            if recipe is None or recipe.nbytes > self.limit or value.dtype.kind == "handle" or value in graph.inputs:
                continue
            kept = first.setdefault((recipe, value.format), value)
            if kept is not value and value.uses and replaceable(graph, value, kept):
                rewriter.replace(value, kept, "same")
                changed = True
        return rewriter.erase_dead() or changed if changed else False


def _mergeable(graph: Graph, old: Value, new: Value) -> bool:
    return replaceable(graph, old, new) and old.format == new.format


def _key(node: Node) -> Hashable | None:
    op = ops.get(node.op)
    if op is None or not op.deterministic or op.kind == "control" or node.subgraphs or not node.inputs:
        return None
    if node.op == "Shape" and node.output.content:
        return node.op, node.output.content, node.guards
    inputs = [0 if v is None else id(v) for v in node.inputs]
    if op.commutative:
        inputs.sort()
    attrs = tuple((name, _hashable(value)) for name, value in sorted(node.attrs.items()))
    return node.op, tuple(inputs), attrs, node.guards, len(node.outputs)


def _hashable(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(value) if isinstance(value, list) else value
