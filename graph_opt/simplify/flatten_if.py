"""Branches of an If become guarded nodes of the graph around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.move_branch import move_branch
from graph_opt.simplify.scopes import control_graphs
from tensor_types.dims import product
from tensor_types.dtypes import BOOL


@dataclass(frozen=True)
class FlattenIf:
    """Moves both branches out and joins each output with IfMerge(condition, then, else).

    1. Both branches give each output the same dtype and rank. Where extents differ, the run decides which they are, and
       the merge is what tells them.
    2. The condition is known to be one bool: it guards tasks.
    3. Moved nodes get the guards of the If and its condition, in this order, before their own: a task runs only if all
       hold. IfMerge runs under the guards of the If alone.
    """

    name: ClassVar[str] = "flatten-if"

    def apply(self, graph: Graph) -> bool:
        changed = any([self._flatten(part) for part in control_graphs(graph)])
        if changed:
            infer_graph(graph)
        return changed

    def _flatten(self, graph: Graph) -> bool:
        changed = False
        while node := next((n for n in graph.nodes if n.op == "If" and _joinable(n)), None):
            condition = node.inputs[0]
            assert condition is not None
            then = move_branch(graph, node, node.subgraphs["then_branch"], ((condition, True),))
            other = move_branch(graph, node, node.subgraphs["else_branch"], ((condition, False),))
            rewriter = Rewriter(graph)
            names: list[tuple[Value, str]] = []
            for index, old in enumerate(node.outputs):
                label = f"{node.name}.output{index}" if index else node.name
                operands = [condition, then[index], other[index]]
                merge = rewriter.insert("IfMerge", operands, before=node, name=label)
                names.append((merge.output, old.name))
                rewriter.replace(old, merge.output, "same")
            rewriter.erase_dead([node])
            for value, name in names:
                rewriter.rename(value, name)
            changed = True
        return changed


def _joinable(node: Node) -> bool:
    condition = node.inputs[0]
    if condition is None or condition.shape is None or product(condition.shape) != 1 or condition.dtype != BOOL:
        return False
    sides = [node.subgraphs[key].outputs for key in ("then_branch", "else_branch")]
    return all(_agree(a, b) for a, b in zip(*sides, strict=True))


def _agree(a: Value, b: Value) -> bool:
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return a.dtype == b.dtype and a.format == b.format and a.dtype.kind != "handle"
