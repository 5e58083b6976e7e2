"""Graphs within graphs: which ones a pass visits, which values it may replace, and replacing node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter


def control_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and the bodies of its control flow, innermost first. Bodies of fused nodes are finished kernels."""
    for node in list(graph.nodes):
        if node.op != "Fused":
            for body in node.subgraphs.values():
                yield from control_graphs(body)
    yield graph


def replaceable(graph: Graph, old: Value, new: Value) -> bool:
    """Whether uses of `old` may read `new`, and `old` then goes.

    A graph output stays when `new` cannot take over its name: a graph input, a constant, an outer value or an output.
    """
    if not graph.is_output(old):
        return True
    return new.producer is not None and graph.values.get(new.name) is new and not graph.is_output(new)


def replace_nodes(graph: Graph, replacement: Callable[[Rewriter, Node], Value | None]) -> bool:
    """Puts what `replacement` gives in the place of a node's first output, where it may; the node then goes.

    Goes through the graph and the bodies of its control flow; whether anything changed.
    """
    return any([_replace_nodes(part, replacement) for part in control_graphs(graph)])


def _replace_nodes(graph: Graph, replacement: Callable[[Rewriter, Node], Value | None]) -> bool:
    rewriter = Rewriter(graph)
    gone: list[Node] = []
    for node in list(graph.nodes):
        new = replacement(rewriter, node)
        if new is not None and replaceable(graph, node.output, new):
            rewriter.replace(node.output, new, "same")
            gone.append(node)
    rewriter.erase_dead(gone)
    return bool(gone)
