"""Chains that widen bytes to numbers, (f32(x) - zero) * scale and the like, which only one element-wise node reads.

They are a quarter of their result in memory, so they belong into the kernel that reads them.
"""

from __future__ import annotations

from graph_opt.ir import Graph, Node, Value
from graph_opt.ir.order import Order
from graph_opt.ir.reads import public_values

_STEPS = frozenset({"Add", "Sub", "Mul"})


def widening(value: Value) -> list[Node]:
    """The nodes that make a value that has one reader from bytes, each of which has one reader too; else none."""
    chain: list[Node] = []
    while len(value.uses) == 1 and value.producer is not None:
        node = value.producer
        chain.append(node)
        source = node.input(0)
        if source is None:  # also of a node that takes nothing, as SequenceEmpty
            break
        if node.op == "Cast":
            wider = source.dtype.is_integer and source.dtype.bits == 8 and value.dtype.is_float
            return chain[::-1] if wider and not source.is_constant else []
        other = node.input(1)
        if node.op not in _STEPS or other is None or other.recipe is None or other.recipe.size != 1:
            break
        value = source
    return []


def sink_widenings(graph: Graph) -> None:
    """Moves such chains before their readers in the order of the nodes: an anchor in between comes before them."""
    public = public_values(graph)
    moved: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            chain = widening(value) if value is not None and value not in public else []
            if chain and all(n.guards == node.guards for n in chain) and len(node.outputs) == 1:
                moved.setdefault(node, []).extend(chain)
    if not moved:
        return
    sunk = {n for chain in moved.values() for n in chain}
    graph.nodes = Order(n for node in graph.nodes if node not in sunk for n in (*moved.get(node, ()), node))
