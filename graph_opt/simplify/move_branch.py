"""Nodes of an If's branch move in front of the If."""

from __future__ import annotations

from collections.abc import Sequence

from graph_opt.ir.core import Graph, Node, Origin, Value
from graph_opt.ir.rewriter import release_inputs, rewire


def move_branch(graph: Graph, node: Node, branch: Graph, guards: Sequence[str]) -> list[Value]:
    """Moves all nodes of `branch` of the If `node` before it and gives the values that are the branch's outputs.

    Moved nodes get the guards of the If and `guards`. Source tensors of the branch become those of the graph, under a
    name of their own when the other branch used the same. The branch is empty afterwards.
    """
    outer: dict[Value, Value] = {}
    for inner in branch.values.values():
        value = graph.add_value(inner.name, inner.dtype, inner.shape, data=inner.data, format=inner.format)
        value.content = inner.content
        outer[inner] = value
    for source, origin in branch.origins.items():
        held = None if origin.value is None else outer[branch.values[origin.value]].name
        graph.origins[_free(graph, source)] = Origin(origin.relation, held)
    condition = (*_guards(node), *guards)
    for inner_node in branch.nodes:
        operands = [None if v is None else outer.get(v, v) for v in inner_node.inputs]
        release_inputs(inner_node)
        rewire(inner_node, outer)
        attrs = dict(inner_node.attrs)
        if condition:
            attrs["guards"] = (*condition, *_guards(inner_node))
        graph.add_node(
            inner_node.op, operands, [outer[v] for v in inner_node.outputs], attrs, name=inner_node.name, before=node,
            subgraphs=inner_node.subgraphs,
        )  # fmt: skip
    results = [outer.get(v, v) for v in branch.outputs]
    branch.nodes, branch.values, branch.outputs, branch.origins = [], {}, [], {}
    return results


def _guards(node: Node) -> tuple[str, ...]:
    return tuple(node.attrs.get("guards") or ())  # type: ignore[arg-type]


def _free(graph: Graph, source: str) -> str:
    name, number = source, 1
    while name in graph.origins:
        name, number = f"{source}.{number}", number + 1
    return name
