"""Nodes of a graph seen as one `Fused` node, before the graph is changed: what a kernel of them would have to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from graph_opt.ir.core import AttrValue, Graph, Node, Value
from graph_opt.ir.order import Outputs
from graph_opt.ir.reads import captured_values, public_values


@dataclass(frozen=True)
class Outline:
    """`node` reads and gives the graph's values, whose use lists and producers do not know of it.

    `members` are the nodes that it stands for; `scalars` the constants of one element that its body holds itself;
    `inner` gives, for every value that members touch, the one of the body.
    """

    node: Node
    members: tuple[Node, ...]
    scalars: tuple[Value, ...]
    inner: Mapping[Value, Value]


def outline(
    graph: Graph, members: Sequence[Node], family: str, attrs: Mapping[str, AttrValue] | None = None, *,
    name: str = "", public: Collection[Value] | None = None,
) -> Outline:  # fmt: skip
    """The Fused node of members that are given in graph order, none of them Fused.

    Its inputs are the outer values in order of first use, without constants of one element, which live in the body;
    its outputs the values that something outside reads or that are in `public` (None: `public_values` of the graph).
    Its guards are those of the first member, since nodes under different guards are never fused.
    """
    inside = set(members)
    kept = public_values(graph) if public is None else public
    made = dict.fromkeys(v for n in members for v in n.outputs)
    outputs = [v for v in made if v in kept or any(u not in inside for u, _ in v.uses)]
    body = Graph(family, dims=graph.dims)
    inner: dict[Value, Value] = {}
    inputs: list[Value | None] = []
    scalars: list[Value] = []
    for value in dict.fromkeys(v for n in members for v in (*n.inputs, *captured_values(n)) if v is not None):
        if value in made:
            continue
        copy = inner[value] = _clone(value, body)
        if value.recipe is not None and value.recipe.size == 1:
            scalars.append(value)
        else:
            inputs.append(value)
            body.inputs.append(copy)
    for node in members:
        inner.update((v, _clone(v, body)) for v in node.outputs)
        operands = [None if v is None else inner[v] for v in node.inputs]
        results = [inner[v] for v in node.outputs]
        body.add_node(node.op, operands, results, node.attrs, name=node.name, subgraphs=node.subgraphs)
    body.outputs = Outputs(inner[v] for v in outputs)
    fused_attrs = {"family": family, **(attrs or {})}
    label, guards = name or members[-1].name, members[0].guards
    fused = Node("Fused", label, inputs, outputs, fused_attrs, {"body": body}, guards)
    return Outline(fused, tuple(members), tuple(scalars), inner)


def _clone(value: Value, graph: Graph) -> Value:
    copy = graph.add_value(value.name, value.dtype, value.shape, data=value.recipe, format=value.format)
    copy.content = value.content
    return copy
