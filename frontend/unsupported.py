"""Which nodes of a graph no operator declaration covers: all of them, not the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_opt.ir import Graph, ops
from tensor_types.errors import UnsupportedOperator


@dataclass(frozen=True)
class UnsupportedNode:
    """A node that nothing implements. `domain` is 'domain:opset'."""

    node: str
    op: str
    domain: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.op} ({self.domain}) of node {self.node}: {self.why}; {self.remedy}"


def unsupported(graph: Graph) -> list[UnsupportedNode]:
    """Every node, those of subgraphs included, whose operator is not declared, in graph order."""
    found: list[UnsupportedNode] = []
    for node in graph.nodes:
        if ops.get(node.op) is None:
            domain, _, name = node.op.rpartition("::")
            why = "the domain is not known" if domain else "the operator is not known in this form"
            own = "rewrite it with standard operators, or register it with atc.register_op"
            remedy = own if domain else "export with a newer opset"
            opset = node.attrs.get("opset", "?")
            found.append(UnsupportedNode(node.name, name, f"{domain or 'ai.onnx'}:{opset}", why, remedy))
        if node.op != "Fused":
            for body in node.subgraphs.values():
                found.extend(unsupported(body))
    return found


def unsupported_error(nodes: Sequence[UnsupportedNode]) -> UnsupportedOperator:
    """One error that lists all of them."""
    lines = "".join(f"\n  {node}" for node in nodes)
    first = nodes[0]
    return UnsupportedOperator(
        f"{len(nodes)} {'node has' if len(nodes) == 1 else 'nodes have'} no implementation:{lines}\n",
        code="E16002", where={"node": first.node, "op": first.op}, remedy=first.remedy,
    )  # fmt: skip
