"""Which nodes of a graph nothing can run: all of them at once."""

from __future__ import annotations

from collections.abc import Callable

from graph_opt.ir import Graph, ops


def unsupported(graph: Graph, known: Callable[[str], bool] | None = None) -> list[dict[str, str]]:
    """One record per node that has no declaration, or that `known` refuses: node, op, domain, why, remedy."""
    rows: list[dict[str, str]] = []
    for node in graph.nodes:
        for body in node.subgraphs.values():
            rows.extend(unsupported(body, known))
        declared = ops.get(node.op)
        if declared is not None and (known is None or known(node.op)):
            continue
        domain, _, name = node.op.rpartition("::")
        why = "the operator is not known" if declared is None else "there is no kernel and no AI CPU implementation"
        remedy = "export the model with standard operators, or register the operator"
        rows.append({"node": node.name, "op": name, "domain": domain or "ai.onnx", "why": why, "remedy": remedy})
    return rows
