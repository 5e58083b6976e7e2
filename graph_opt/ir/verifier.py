"""Checks every invariant of a graph; never changes it. Runs after every pass in tests and under a debug switch."""

from __future__ import annotations

from collections import Counter

from graph_opt.ir import ops, states
from graph_opt.ir.core import RELATIONS, Graph, Guards, Node, Value
from tensor_types.dims import product


class InvalidGraph(Exception):
    """An invariant is broken: a defect of the compiler, not of the model."""


def verify(graph: Graph) -> None:
    """Raises InvalidGraph unless all of this holds.

    1. Names are unique and `values` lists exactly the values of the graph.
    2. Each value has one producer, which lists it; producers precede uses, graph outputs are available.
    3. Use lists hold each use once, and nothing else.
    4. Constants fit their dtype and shape; `content` fits the shape.
    5. Nodes have the inputs and subgraphs that their operator declares; bodies of Fused match inputs and outputs.
    6. Each source tensor has a known state, and what it refers to exists.
    7. Guards are bools of one element, and bodies of Fused nodes have none. What a node reads is made whenever the node
       runs: the guards of the producer are among its own, with the condition of an IfMerge added on either side.
       Graph outputs are made in every run.
    8. States are sound, as `states.problem` says.
    """
    uses: Counter[tuple[int, int, int]] = Counter()
    _verify_graph(graph, {}, uses, ())
    _verify_uses(graph, uses)
    if fault := states.problem(graph):
        raise InvalidGraph(fault)
    for source, origin in graph.origins.items():
        if origin.relation not in RELATIONS:
            raise InvalidGraph(f"source tensor {source} has the unknown relation {origin.relation!r}")
        if origin.value is None and origin.relation not in ("dead", "folded"):
            raise InvalidGraph(f"source tensor {source} is {origin.relation}, but of no value")
        if origin.value is not None and (origin.relation == "dead" or origin.value not in graph.values):
            raise InvalidGraph(f"source tensor {source} is {origin.relation} %{origin.value}, which does not exist")


def _verify_graph(
    graph: Graph, outer: dict[int, Value], uses: Counter[tuple[int, int, int]], outer_guards: Guards
) -> None:
    for name, value in graph.values.items():
        if value.name != name:
            raise InvalidGraph(f"value {value.name} is registered as {name}")
    available = dict(outer)
    for value in graph.inputs:
        _own(graph, value)
        if value.producer is not None:
            raise InvalidGraph(f"graph input {value.name} has a producer, {value.producer}")
        if id(value) in available:
            raise InvalidGraph(f"graph input {value.name} is listed twice")
        available[id(value)] = value
    for value in graph.constants():
        _verify_constant(value)
        available[id(value)] = value
    for node in graph.nodes:
        _verify_node(node, available)
        for index, operand in node.operands():
            if id(operand) not in available:
                known = graph.values.get(operand.name) is operand
                raise InvalidGraph(f"{node} uses %{operand.name} {'before it is made' if known else 'of no graph'}")
            uses[(id(operand), id(node), index)] += 1
            _verify_guards(node, index, operand, outer_guards)
        for body in node.subgraphs.values():
            # A fused body is closed; bodies of control flow see the outer values.
            _verify_graph(body, {} if node.op == "Fused" else available, uses, (*outer_guards, *node.guards))
        for value in node.outputs:
            _own(graph, value)
            if value.producer is not node:
                raise InvalidGraph(f"%{value.name} is an output of {node}, but its producer is {value.producer}")
            if id(value) in available:
                raise InvalidGraph(f"%{value.name} is made twice, also by {node}")
            if value.is_constant:
                raise InvalidGraph(f"%{value.name} is a constant and an output of {node}")
            _verify_content(value)
            available[id(value)] = value
    for value in graph.values.values():
        if id(value) not in available:
            raise InvalidGraph(f"%{value.name} is neither an input, nor a constant, nor made by a node of the graph")
    for value in graph.outputs:
        if id(value) not in available:
            raise InvalidGraph(f"graph output %{value.name} is made by no node")
        if value.producer is not None and not set(value.producer.guards) <= set(outer_guards):
            raise InvalidGraph(f"graph output %{value.name} is made under a guard")


def _own(graph: Graph, value: Value) -> None:
    if graph.values.get(value.name) is not value:
        raise InvalidGraph(f"%{value.name} is not registered under its name")


def _verify_uses(graph: Graph, uses: Counter[tuple[int, int, int]]) -> None:
    totals = Counter(value for value, _, _ in uses)
    for value in graph.values.values():
        listed = Counter((id(value), id(node), index) for node, index in value.uses)
        for key, count in listed.items():
            if uses[key] != 1 or count != 1:
                user = next(n for n, _ in value.uses if id(n) == key[1])
                place = f"input {key[2]}" if key[2] >= 0 else f"guard {-1 - key[2]}"
                raise InvalidGraph(f"%{value.name} lists a use by {user}, {place}, that is not there")
        if totals[id(value)] != len(listed):
            raise InvalidGraph(f"%{value.name} has {totals[id(value)]} uses but lists {len(listed)}")
    for node in graph.nodes:
        for body in node.subgraphs.values():
            _verify_uses(body, uses)


def _verify_guards(node: Node, index: int, operand: Value, outer_guards: Guards) -> None:
    """The operand at a use index of the node: as a guard it is a condition, and what makes it runs whenever needed."""
    if index < 0 and (operand.dtype.kind != "bool" or any(extent != 1 for extent in operand.shape or ())):
        raise InvalidGraph(f"{node} has the guard {operand}, which is no bool of one element")
    if operand.producer is None or not operand.producer.guards:
        return
    holds = {*outer_guards, *(node.guards[: -1 - index] if index < 0 else node.guards)}
    condition = node.input(0)
    if node.op == "IfMerge" and index > 0 and condition is not None:
        holds.add((condition, index == 1))
    missing = next((v.name for v, wanted in operand.producer.guards if (v, wanted) not in holds), None)
    if missing is not None:
        raise InvalidGraph(f"{node} uses %{operand.name}, which is made under a guard of %{missing} that it lacks")


def _verify_node(node: Node, available: dict[int, Value]) -> None:
    if not node.outputs:
        raise InvalidGraph(f"{node} has no outputs")
    op = ops.get(node.op)
    if op is None:
        return
    present = len(node.inputs)
    if present < op.required or (present > len(op.inputs) and not op.variadic):
        raise InvalidGraph(f"{node} has {present} inputs, {op.required} to {len(op.inputs)} declared")
    for index, name in enumerate(op.inputs[:present]):
        if node.inputs[index] is None and not name.endswith(("?", "*")):
            raise InvalidGraph(f"{node} lacks its input {name}")
    for name, attr in op.attrs.items():
        if attr.type == "graph" and name not in node.subgraphs:
            raise InvalidGraph(f"{node} lacks its subgraph {name}")
    if node.op == "Fused":
        body = node.subgraphs.get("body")
        if body is None:
            raise InvalidGraph(f"{node} has no body")
        if any(inner.guards for inner in body.nodes):
            raise InvalidGraph(f"{node} has guards in its body")
        for side, outer, inner in (("inputs", node.inputs, body.inputs), ("outputs", node.outputs, body.outputs)):
            if len(outer) != len(inner):
                raise InvalidGraph(f"{node} has {len(outer)} {side}, its body {len(inner)}")
            for a, b in zip(outer, inner, strict=True):
                if a is not None and (a.dtype, a.shape, a.format) != (b.dtype, b.shape, b.format):
                    raise InvalidGraph(f"{node}: {a} in format {a.format} is {b} in format {b.format} in its body")


def _verify_constant(value: Value) -> None:
    recipe = value.recipe
    assert recipe is not None
    if value.shape != recipe.shape:
        raise InvalidGraph(f"constant {value} holds data of shape {recipe.shape}")
    if recipe.dtype != value.dtype:
        raise InvalidGraph(f"constant {value} holds data of dtype {recipe.dtype}")


def _verify_content(value: Value) -> None:
    if value.content is None:
        return
    count = None if value.shape is None else product(value.shape)
    if count != len(value.content):
        raise InvalidGraph(f"{value} has a content of {len(value.content)} elements")
