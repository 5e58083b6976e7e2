"""Recognises GELU written in primitive operators.

    0.5 * x * (1 + erf(x / sqrt(2)))                                  -> Gelu(x)
    0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))          -> Gelu(x) {approximate="tanh"}

The factors may stand in any order and grouping, divisions by constants included; interior values have no other use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graph_opt.fusion.scalar_terms import close, factors, only_used_by, plus_number, scalar_or_int
from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter


@dataclass(frozen=True)
class FuseGelu:
    """See the module."""

    name: str = "fuse-gelu"

    def apply(self, graph: Graph) -> bool:
        changed = False
        for node in list(graph.nodes):
            if node.op in ("Mul", "Div") and graph.values.get(node.output.name) is node.output:
                changed |= _match(graph, node)
        return changed


def _match(graph: Graph, root: Node) -> bool:
    number, values, nodes = factors(root.output)
    if len(values) != 2 or not close(number, 0.5):
        return False
    for x, bracket in (values, values[::-1]):
        found = plus_number(bracket)
        if found is None or not close(found[1], 1.0):
            continue
        term, _, add = found
        inner = _erf_argument(term, x) or _tanh_argument(term, x)
        if inner is None:
            continue
        approximate, below = inner
        members = {root, *nodes, add, *below}
        interior = [v for n in members for v in n.outputs if v is not root.output]
        if not all(only_used_by(graph, v, members) for v in interior):
            continue
        rewriter = Rewriter(graph)
        guards = {"guards": root.attrs["guards"]} if "guards" in root.attrs else {}
        gelu = rewriter.insert("Gelu", [x], {"approximate": approximate, **guards}, before=root, name=root.name)
        rewriter.absorb(interior, gelu.output)
        rewriter.replace(root.output, gelu.output)
        rewriter.erase_dead([root])
        return True
    return False


def _erf_argument(term: Value, x: Value) -> tuple[str, list[Node]] | None:
    erf = term.producer
    if erf is None or erf.op != "Erf" or erf.inputs[0] is None:
        return None
    number, values, nodes = factors(erf.inputs[0])
    if values == [x] and close(number, 1 / math.sqrt(2)):
        return "none", [erf, *nodes]
    return None


def _tanh_argument(term: Value, x: Value) -> tuple[str, list[Node]] | None:
    tanh = term.producer
    if tanh is None or tanh.op != "Tanh" or tanh.inputs[0] is None:
        return None
    number, values, nodes = factors(tanh.inputs[0])
    if len(values) != 1 or not close(number, math.sqrt(2 / math.pi)):
        return None
    add = values[0].producer
    if add is None or add.op != "Add":
        return None
    for first, cubic in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
        if first is not x or cubic is None:
            continue
        weight, powers, inner = factors(cubic)
        if not close(weight, 0.044715):
            continue
        power = powers[0].producer if len(powers) == 1 else None
        if powers == [x, x, x]:
            return "tanh", [tanh, *nodes, add, *inner]
        if power is not None and power.op == "Pow" and power.inputs[0] is x and scalar_or_int(power.inputs[1]) == 3.0:
            return "tanh", [tanh, *nodes, add, *inner, power]
    return None
