"""What a loop carries from run to run unchanged is no state of it: its body reads the value from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.order import Outputs
from graph_opt.ir.rewriter import Rewriter, rewire
from graph_opt.simplify.scopes import control_graphs, replaceable


@dataclass(frozen=True)
class HoistInvariants:
    """A state of a Loop or Scan that the body gives back as it came becomes a value that the body captures.

    Weights of a layer that an exporter passes through a loop are constants of its body then, which kernels take in the
    order that they want.
    """

    name: ClassVar[str] = "hoist-invariants"

    def apply(self, graph: Graph) -> bool:
        return any([_hoist(part, n) for part in control_graphs(graph) for n in list(part.nodes) if n.op in LOOPS])


LOOPS = ("Loop", "Scan")


def loop_states(node: Node) -> tuple[range, int]:
    """The inputs of a Loop or Scan that are initial states, and which output of the body is the first next state."""
    if node.op == "Loop":
        return range(2, len(node.inputs)), 1
    return range(len(node.inputs) - int(str(node.attrs["num_scan_inputs"]))), 0


def _hoist(graph: Graph, node: Node) -> bool:
    body = node.subgraphs["body"]
    states, made = loop_states(node)
    outer: dict[Value, Value] = {}
    gone: list[int] = []
    for number, place in enumerate(states):
        value, inner = node.inputs[place], body.inputs[place]
        if value is not None and _seen_through(body.outputs[made + number]) is inner and value.shape == inner.shape:
            outer[inner] = value
            gone.append(number)
    if not outer:
        return False
    for inner_node in body.nodes:
        for index, operand in list(inner_node.operands()):
            if operand in outer:
                inner_node.set_input(index, outer[operand])
    for inner in outer:
        body.inputs.remove(inner)
        del body.values[inner.name]
        for place, origin in list(body.origins.items()):
            if origin.value == inner.name:
                del body.origins[place]
    body.outputs = Outputs(outer.get(v, v) for n, v in enumerate(body.outputs) if n - made not in gone)
    for inner_node in body.nodes:
        rewire(inner_node, outer)
    Rewriter(body).erase_dead()
    rewriter = Rewriter(graph)
    for number in gone:
        old, new = node.outputs[number], node.inputs[states[number]]
        assert new is not None
        if not replaceable(graph, old, new):
            new = rewriter.insert("Identity", [new], before=node, name=f"{node.name}/{old.name}").output
        rewriter.replace(old, new, "same")
    kept = [n for n in range(len(node.outputs)) if n not in gone]
    if not kept:
        rewriter.erase_dead([node])
        return True
    for number in gone:
        del graph.values[node.outputs[number].name]
    node.outputs = [node.outputs[n] for n in kept]
    _set_inputs(node, [v for n, v in enumerate(node.inputs) if n not in [states[g] for g in gone]])
    return True


def _seen_through(value: Value) -> Value:
    """What a value is a copy of."""
    while value.producer is not None and value.producer.op == "Identity" and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value


def _set_inputs(node: Node, operands: Sequence[Value | None]) -> None:
    for index in range(len(node.inputs)):
        node.set_input(index, None)
    node.inputs = [None] * len(operands)
    for index, value in enumerate(operands):
        node.set_input(index, value)
