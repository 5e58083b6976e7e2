"""Nodes of an If's branch move in front of the If."""

from __future__ import annotations

from graph_opt.ir.core import Graph, Guards, Node, Origin, Value
from graph_opt.ir.order import Order, Outputs
from graph_opt.ir.rewriter import release_operands, rewire


def move_branch(graph: Graph, node: Node, branch: Graph, guards: Guards) -> list[Value]:
    """Moves all nodes of `branch` of the If `node` before it and gives the values that are the branch's outputs.

    Moved nodes get the guards of the If, then `guards`, then their own. Source tensors of the branch become those of
    the graph, under a name of their own when the other branch used the same. The branch is empty afterwards.
    """
    outer: dict[Value, Value] = {}
    renamed: dict[str, str] = {}
    for inner in branch.values.values():
        value = graph.add_value(inner.name, inner.dtype, inner.shape, data=inner.recipe, format=inner.format)
        value.content = inner.content
        outer[inner] = value
        renamed[inner.name] = value.name
    for source, origin in branch.origins.items():
        held = None if origin.value is None else renamed.get(origin.value, origin.value)
        lost = held is not None and held not in graph.values  # an outer value that has gone since
        graph.origins[_free(graph, source)] = Origin("dead", None) if lost else Origin(origin.relation, held)
    for inner_node in branch.nodes:
        operands = [None if v is None else outer.get(v, v) for v in inner_node.inputs]
        own = ((outer.get(v, v), wanted) for v, wanted in inner_node.guards)
        conditions = (*node.guards, *guards, *own)
        release_operands(inner_node)
        rewire(inner_node, outer)
        graph.add_node(
            inner_node.op, operands, [outer[v] for v in inner_node.outputs], inner_node.attrs, name=inner_node.name,
            before=node, subgraphs=inner_node.subgraphs, guards=conditions,
        )  # fmt: skip
    results = [outer.get(v, v) for v in branch.outputs]
    branch.nodes, branch.values, branch.outputs, branch.origins = Order(), {}, Outputs(), {}
    return results


def _free(graph: Graph, source: str) -> str:
    name, number = source, 1
    while name in graph.origins:
        name, number = f"{source}.{number}", number + 1
    return name
