"""Puts the nodes of an If branch into the graph of the If."""

from __future__ import annotations

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter, release_inputs, rewire
from graph_opt.simplify.guarding import guards_of, split_guard


def inline_branch(rewriter: Rewriter, node: Node, key: str, guards: tuple[str, ...]) -> tuple[list[Value], list[Node]]:
    """Moves subgraph `key` of `node` before `node`, every node under `guards`; the branch is empty afterwards.

    Returns the outer values that stand for the branch's outputs, and the nodes. Names that are taken get a suffix.
    """
    graph, branch = rewriter.graph, node.subgraphs[key]
    outer: dict[Value, Value] = {}
    renamed: dict[str, str] = {}
    for value in branch.values.values():
        moved = graph.add_value(value.name, value.dtype, value.shape, data=value.data, format=value.format)
        moved.content = value.content
        outer[value] = moved
        renamed[value.name] = moved.name
    taken = {n.name for n in graph.nodes}
    nodes: list[Node] = []
    for inner in branch.nodes:
        operands = [None if v is None else outer.get(v, v) for v in inner.inputs]
        release_inputs(inner)
        rewire(inner, outer)
        attrs = dict(inner.attrs)
        own = (split_guard(word) for word in guards_of(inner))
        conditions = (*guards, *(f"{renamed.get(name, name)}={wanted}" for name, wanted in own))
        if conditions:
            attrs["guards"] = conditions
        name = _unused(inner.name, taken)
        outputs = [outer[v] for v in inner.outputs]
        nodes.append(graph.add_node(inner.op, operands, outputs, attrs, name=name, before=node, subgraphs=inner.subgraphs))
    results = [outer.get(v, v) for v in branch.outputs]
    _surface_origins(graph, branch, renamed, rewriter)
    # What is left of the branch must keep nothing alive.
    branch.nodes, branch.outputs, branch.values = [], [], {}
    return results, nodes


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while name and found in taken:
        found, number = f"{name}.{number}", number + 1
    taken.add(found)
    return found


def _surface_origins(graph: Graph, branch: Graph, renamed: dict[str, str], rewriter: Rewriter) -> None:
    for source, origin in branch.origins.items():
        if origin.value in renamed and source not in graph.origins:
            rewriter.add_origin(source, origin.relation, graph.values[renamed[origin.value]])
    branch.origins = {}
