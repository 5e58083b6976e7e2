"""What a node needs before it runs, in the graph around it too."""

from __future__ import annotations

from collections.abc import Iterator

from graph_opt.ir.core import Graph, Node, Value


def nested_graphs(graph: Graph) -> Iterator[Graph]:
    """Every subgraph below `graph`, outer ones first."""
    for node in graph.nodes:
        yield from nested_bodies(node)


def nested_bodies(node: Node) -> Iterator[Graph]:
    """Every subgraph of a node, outer ones first."""
    for body in node.subgraphs.values():
        yield body
        yield from nested_graphs(body)


def captured_values(node: Node) -> list[Value]:
    """Values of outer graphs that the subgraphs of `node` use, in order of first use."""
    found: dict[Value, None] = {}
    for body in node.subgraphs.values():
        own = set(body.values.values())
        used = [v for inner in body.nodes for v in read_values(inner)]
        found.update(dict.fromkeys(v for v in (*used, *body.outputs) if v not in own))
    return list(found)


def read_values(node: Node) -> list[Value]:
    """All values that must be made before the node runs: inputs, guards, and what its subgraphs capture."""
    return [*(v for _, v in node.operands()), *captured_values(node)]


def public_values(graph: Graph) -> set[Value]:
    """Values that are needed whatever nodes read them: results of the graph and of nested graphs."""
    bodies = (b for n in graph.nodes if n.subgraphs and n.op != "Fused" for b in nested_bodies(n))
    return {*graph.outputs, *(v for body in bodies for v in body.outputs)}
