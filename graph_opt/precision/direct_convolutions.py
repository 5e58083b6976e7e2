"""Keeps convolutions from being computed by other sums than those over their windows.

1. Every Conv gets the attribute `direct`, which its kernel family obeys. Nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_opt.ir import Graph


@dataclass(frozen=True)
class DirectConvolutions:
    """See the module."""

    name: str = "direct-convolutions"

    def apply(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes if node.op == "Conv" and not node.attrs.get("direct")]
        for node in found:
            node.attrs["direct"] = 1
        return bool(found)
