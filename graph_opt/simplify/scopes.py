"""Graphs within graphs: which ones a pass visits, and which values it may replace."""

from __future__ import annotations

from collections.abc import Iterator

from graph_opt.ir.core import Graph, Value


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
    The condition of a flattened If stays, because guards name it.
    """
    if any(node.op == "IfMerge" and index == 0 for node, index in old.uses):
        return False
    if not graph.is_output(old):
        return True
    return new.producer is not None and graph.values.get(new.name) is new and not graph.is_output(new)
