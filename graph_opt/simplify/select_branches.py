"""An If or IfMerge whose condition is known is replaced by the side that is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.infer import infer_graph
from graph_opt.ir.ops.registry import content_of
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.failing_branch import working_branch
from graph_opt.simplify.move_branch import move_branch
from graph_opt.simplify.scopes import control_graphs


@dataclass(frozen=True)
class SelectBranches:
    """Inlines the branch that runs of every If where that is known.

    1. The condition is a constant, or decided for all values of the dims.
    2. With the other branch the rest of the model cannot be right for any input (see `failing_branch`); the dim that
       decides gets the range in which the branch that works is taken.
    3. An IfMerge with a known condition gives way to its side, and guards that always hold go.
    The graph is inferred anew: the branch may know more than both of them agreed on.
    """

    name: ClassVar[str] = "select-branches"

    def apply(self, graph: Graph) -> bool:
        return any([self._select(part, graph) for part in control_graphs(graph)])

    def _select(self, graph: Graph, whole: Graph) -> bool:
        changed = any([_drop_guards(node) for node in graph.nodes])
        while found := next(((n, key) for n in graph.nodes if (key := _taken(graph, n))), None):
            node, key = found
            if node.op == "If":
                results = move_branch(graph, node, node.subgraphs[key], ())
            else:
                results = [v for v in (node.inputs[1 if key == "then_branch" else 2],) if v is not None]
            rewriter = Rewriter(graph)
            for old, new in zip(node.outputs, results, strict=True):
                rewriter.replace(old, new, "same")
            rewriter.erase_dead([node])
            infer_graph(whole)
            for other in graph.nodes:
                _drop_guards(other)
            changed = True
        return changed


def _known(condition: Value | None) -> bool | None:
    content = None if condition is None else content_of(condition)
    return bool(content[0]) if content and isinstance(content[0], int) else None


def _taken(graph: Graph, node: Node) -> str | None:
    """The branch that runs; None when it is not known."""
    if node.op not in ("If", "IfMerge"):
        return None
    known = _known(node.inputs[0])
    if known is not None:
        return "then_branch" if known else "else_branch"
    return working_branch(graph, node) if node.op == "If" else None


def _drop_guards(node: Node) -> bool:
    """Guards that always hold go. One that never holds stays on a node that is dead or about to be."""
    kept = [(condition, wanted) for condition, wanted in node.guards if _known(condition) is not wanted]
    if len(kept) == len(node.guards):
        return False
    node.set_guards(kept)
    return True
