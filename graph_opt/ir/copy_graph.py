"""Copies a graph, so that passes may go on differently for another target.

1. Values, nodes, subgraphs, use lists, origins, dims and requirements are the copy's own; names and orders stay.
2. Content of constants is shared: arrays are never written.
3. Graphs that share one table of dims or requirements, as bodies do with their outer graph, share one in the copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.order import Order, Outputs

_Table = TypeVar("_Table", bound=dict)  # type: ignore[type-arg]


def copy_graph(graph: Graph) -> Graph:
    """A graph equal to `graph` that shares nothing with it but the content of constants."""
    copier = _Copier()
    result = copier.graph(graph)
    copier.connect()
    return result


class _Copier:
    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}
        self.nodes: dict[Node, Node] = {}
        self.tables: dict[int, object] = {}

    def graph(self, source: Graph) -> Graph:
        """The copy of a graph; producers and uses of its values are not set yet."""
        result = Graph(
            source.name,
            origins=dict(source.origins),
            states=dict(source.states),
            dims=self.table(source.dims),
            requirements=self.table(source.requirements),
            warnings=list(source.warnings),
        )
        for name, value in source.values.items():
            result.values[name] = self.values[value] = replace(value, producer=None, uses={})
        result.nodes = Order(self.node(node) for node in source.nodes)
        result.inputs = [self.values[v] for v in source.inputs]
        result.outputs = Outputs(self.values[v] for v in source.outputs)
        return result

    def node(self, source: Node) -> Node:
        subgraphs = {name: self.graph(body) for name, body in source.subgraphs.items()}
        inputs = [None if v is None else self.values[v] for v in source.inputs]
        outputs = [self.values[v] for v in source.outputs]
        guards = tuple((self.values[condition], expected) for condition, expected in source.guards)
        copy = Node(source.op, source.name, inputs, outputs, dict(source.attrs), subgraphs, guards)
        self.nodes[source] = copy
        return copy

    def table(self, source: _Table) -> _Table:
        return self.tables.setdefault(id(source), source.copy())  # type: ignore[return-value]

    def connect(self) -> None:
        """Producers and uses, in the order of the original."""
        for value, copy in self.values.items():
            copy.producer = None if value.producer is None else self.nodes[value.producer]
            copy.uses = {(self.nodes[node], index): None for node, index in value.uses}
