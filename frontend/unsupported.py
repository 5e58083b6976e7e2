"""Which nodes of a graph no operator declaration covers: all of them, not the first."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from frontend.normalise.pending import has_form
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
            found.append(_unknown(node.name, name, domain, str(node.attrs.get("opset", "?"))))
        if node.op != "Fused":
            for body in node.subgraphs.values():
                found.extend(unsupported(body))
    return found


def unsupported_in_file(proto: onnx.GraphProto, opsets: Mapping[str, int]) -> list[UnsupportedNode]:
    """The same of a graph that could not be read to its end, because what an unknown operator makes has no type."""
    found: list[UnsupportedNode] = []
    for node in proto.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        full = f"{domain}::{node.op_type}" if domain else node.op_type
        if ops.get(full) is None and not has_form(full):
            name = node.name or next(filter(None, node.output), node.op_type)
            found.append(_unknown(name, node.op_type, domain, str(opsets.get(domain, "?"))))
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                found.extend(unsupported_in_file(body, opsets))
    return found


def _unknown(node: str, op: str, domain: str, opset: str) -> UnsupportedNode:
    """The nearest thing that is known: the same name in another domain, then a similar name."""
    known: dict[str, str] = {}
    for declared in ops.declared():
        own, _, name = declared.name.rpartition("::")
        known.setdefault(name, own or "ai.onnx")
    near = difflib.get_close_matches(op, known, 1, 0.8)
    if op in known:
        why, remedy = "it is not of this domain", f"{known[op]} has an operator of that name"
    elif near:
        why = "the operator is not known"
        remedy = f"did you mean {near[0]} ({known[near[0]]})?"
    else:
        why = "the domain is not known" if domain and domain not in known.values() else "the operator is not known"
        own = "rewrite it with standard operators, or register it with atc.register_op"
        remedy = own if domain else "export with a newer opset"
    return UnsupportedNode(node, op, f"{domain or 'ai.onnx'}:{opset}", why, remedy)


def unsupported_error(nodes: Sequence[UnsupportedNode]) -> UnsupportedOperator:
    """One error that lists all of them."""
    lines = "".join(f"\n  {node}" for node in nodes)
    first = nodes[0]
    return UnsupportedOperator(
        f"{len(nodes)} {'node has' if len(nodes) == 1 else 'nodes have'} no implementation:{lines}\n",
        code="E16002", where={"node": first.node, "op": first.op}, remedy=first.remedy,
    )  # fmt: skip
