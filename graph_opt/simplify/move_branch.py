"""Nodes of an If's branch move in front of the If."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graph_opt.ir.core import Graph, Node, Origin, Value
from graph_opt.ir.rewriter import release_inputs, rewire


def guards_of(node: Node) -> tuple[str, ...]:
    """Conditions under which a node runs, outer ones first: words 'value=1' and 'value=0'."""
    return tuple(node.attrs.get("guards") or ())  # type: ignore[arg-type]


def split_guard(word: str) -> tuple[str, int]:
    """Name of the bool value, and what it must be."""
    name, _, wanted = word.rpartition("=")
    return name, int(wanted)


def set_guards(node: Node, guards: Sequence[str]) -> None:
    """Sets or removes the guards of a node."""
    if guards:
        node.attrs["guards"] = tuple(guards)
    else:
        node.attrs.pop("guards", None)


def move_branch(graph: Graph, node: Node, branch: Graph, guards: Iterable[str]) -> list[Value]:
    """Moves all nodes of `branch` of the If `node` before it and gives the values that are the branch's outputs.

    Moved nodes get the guards of the If, then `guards`, then their own. Source tensors of the branch become those of
    the graph, under a name of their own when the other branch used the same. The branch is empty afterwards.
    """
    outer: dict[Value, Value] = {}
    renamed: dict[str, str] = {}
    for inner in branch.values.values():
        value = graph.add_value(inner.name, inner.dtype, inner.shape, data=inner.data, format=inner.format)
        value.content = inner.content
        outer[inner] = value
        renamed[inner.name] = value.name
    for source, origin in branch.origins.items():
        held = None if origin.value is None else renamed.get(origin.value, origin.value)
        lost = held is not None and held not in graph.values  # an outer value that has gone since
        graph.origins[_free(graph, source)] = Origin("dead", None) if lost else Origin(origin.relation, held)
    condition = (*guards_of(node), *guards)
    for inner_node in branch.nodes:
        operands = [None if v is None else outer.get(v, v) for v in inner_node.inputs]
        release_inputs(inner_node)
        rewire(inner_node, outer)
        moved = graph.add_node(
            inner_node.op, operands, [outer[v] for v in inner_node.outputs], inner_node.attrs, name=inner_node.name,
            before=node, subgraphs=inner_node.subgraphs,
        )  # fmt: skip
        own = (split_guard(word) for word in guards_of(inner_node))
        set_guards(moved, (*condition, *(f"{renamed.get(name, name)}={wanted}" for name, wanted in own)))
    results = [outer.get(v, v) for v in branch.outputs]
    branch.nodes, branch.values, branch.outputs, branch.origins = [], {}, [], {}
    return results


def _free(graph: Graph, source: str) -> str:
    name, number = source, 1
    while name in graph.origins:
        name, number = f"{source}.{number}", number + 1
    return name
