"""Which sizes are known when a node runs: those that only data decides are known behind the task that makes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.ops.registry import is_fresh
from tensor_types.dims import Dim, Expr, names
from tensor_types.dtypes import DType

LATE_SIZE = "its size is known only at run time"
"""Why such a node has no kernel."""


class DataDependentSizes:
    """The sizes that only a run decides, less those that a task of the AI CPU has decided so far."""

    def __init__(self, graph: Graph) -> None:
        self.late = {name for name in graph.dims if is_fresh(name)} - told_by_inputs(graph)
        self.decided_by: dict[str, str] = {}
        """The first value that tells a size."""

    def are_late(self, node: Node) -> bool:
        """True if a value of the node, or inside of it, has no bytes or a size that is not decided before it."""
        values = _values(node)
        if any(v.shape is None or v.dtype.kind == "handle" for v in values):
            return True
        return bool(self.late) and _depends(values, self.late)

    def decide(self, node: Node) -> None:
        """The node runs on the AI CPU: what it makes tells its sizes."""
        for value in node.outputs:
            told = decided(value.dtype, value.shape) & self.late
            self.decided_by.update(dict.fromkeys(told, value.name))
            self.late -= told


def decided(dtype: DType, shape: Iterable[Dim] | None) -> set[str]:
    """The dims that the actual shape of a tensor tells, each being an extent of its own."""
    if dtype.kind == "handle":
        return set()
    return {str(d) for d in shape or () if isinstance(d, Expr) and d.is_name}


def told_by_inputs(graph: Graph) -> set[str]:
    """The dims that the shapes of a graph's inputs tell: of the body of a loop also those that a run decided."""
    return set().union(*(decided(v.dtype, v.shape) for v in graph.inputs))


def _values(node: Node) -> list[Value]:
    """Inputs, outputs and, of a Fused node, the values inside."""
    inside = node.subgraphs["body"].values.values() if node.op == "Fused" else ()
    return [v for v in (*node.inputs, *node.outputs, *inside) if v is not None]


def _depends(values: Iterable[Value], dims: Collection[str]) -> bool:
    return any(name in dims for v in values for d in v.shape or () for name in names(d))
