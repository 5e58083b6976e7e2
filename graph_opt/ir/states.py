"""States: what lives from run to run in one buffer of fixed capacity, written in place.

A state is an input and an output of the graph, paired in `Graph.states`: its content when a run begins and when it
ends. In between it has versions, each made by an update of the one before:

    state %cache -> %cache_out
    %cache_out = TensorScatter(%cache, %rows, %length)

An update node reads its first input, which no task reads afterwards, and gives it with some rows replaced. How many
rows hold something is data: an i64 value like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from graph_opt.ir.core import Graph, Node, Value

UPDATES = frozenset({"TensorScatter", "ScatterPages"})
"""Operators whose result is their first input with some elements replaced."""


def updates(graph: Graph) -> Mapping[Node, Value]:
    """The nodes that write a state in place, and the version that each of them overwrites."""
    found: dict[Node, Value] = {}
    for first, last in graph.states.items():
        value = graph.values[last]
        while value.name != first and value.producer is not None and updates_first_input(value.producer):
            before = value.producer.inputs[0]
            if before is None:
                break
            found[value.producer] = before
            value = before
    return found


def updates_first_input(node: Node) -> bool:
    """True if the first output is the first input with some elements replaced."""
    if node.op != "Fused":
        return node.op in UPDATES
    body = node.subgraphs["body"]
    whole = len(body.nodes) == 1 and body.nodes[0].op in UPDATES
    return whole and bool(body.inputs) and next(iter(body.nodes)).inputs[0] is body.inputs[0]


def problem(graph: Graph) -> str | None:
    """Why the states of a graph are not sound, None if they are.

    1. A state pairs an input and an output of the graph, of one type and with static shape; no two share an end.
    2. The output is the input after a chain of updates, none of them guarded.
    3. Nothing reads a version behind the node that overwrites it, and none but the last is an output.
    """
    inputs, outputs = {v.name for v in graph.inputs}, {v.name for v in graph.outputs}
    if len(set(graph.states.values())) != len(graph.states):
        return "two states have one result"
    made = updates(graph)
    position = {node: n for n, node in enumerate(graph.nodes)} if graph.states else {}
    for first, last in graph.states.items():
        if first not in inputs or last not in outputs:
            return f"state %{first} is no input, or its result %{last} no output"
        begin, value = graph.values[first], graph.values[last]
        if not begin.is_static or (begin.dtype, begin.shape, begin.format) != (value.dtype, value.shape, value.format):
            return f"state {begin} ends as {value}"
        while value is not begin:
            node = value.producer
            if node is None or node not in made:
                return f"%{value.name} is not made from state %{first} by updates alone"
            before = made[node]
            if node.guards:
                return f"{node} updates state %{first} in a branch"
            late = [user for user, index in before.uses if position[user] > position[node]]
            if late:
                return f"{late[0]} reads %{before.name}, which {node} has overwritten"
            if graph.is_output(before):
                return f"%{before.name} is an output, and {node} overwrites it"
            value = before
    return None
