"""Graph IR: values, nodes, graphs, op declarations, text form, verifier, rewriter and patterns.

Everything above the tile language speaks in these types; they know dims, dtypes and formats only.
"""

from graph_opt.ir.core import Graph, Node, Origin, Requirement, Value

__all__ = ["Graph", "Node", "Origin", "Requirement", "Value"]
