"""Broadcasts that are written out are left to the operators that broadcast anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir import ops
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.simplify.scopes import control_graphs, replaceable
from tensor_types.dims import Dim

_BROADCASTING = frozenset(
    "Add Sub Mul Div Mod Pow Max Min Sum Mean And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual Where "
    "BitwiseAnd BitwiseOr BitwiseXor BitShift".split()
)


@dataclass(frozen=True)
class AbsorbExpands:
    """Fewer tensors that only repeat others.

    1. ConstantOfShape with a size that only the run knows is an Expand of its one element.
    2. An element-wise operator reads what was expanded instead of the Expand, where the other operands alone already
       have every extent of the result.
    """

    name: ClassVar[str] = "absorb-expands"

    def apply(self, graph: Graph) -> bool:
        return any([self._absorb(part) for part in control_graphs(graph)])

    def _absorb(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        changed = False
        for node in list(graph.nodes):
            if node.op == "ConstantOfShape":
                changed |= _as_expand(rewriter, node)
        for node in graph.nodes:
            if node.op in _BROADCASTING and ops.get(node.op) is not None:
                changed |= any([_read_through(node, index) for index in range(len(node.inputs))])
        if changed:
            rewriter.erase_dead()
        return changed


def _as_expand(rewriter: Rewriter, node: Node) -> bool:
    size, result = node.inputs[0], node.output
    if size is None or size.is_constant or result.shape is None:
        return False
    given = node.attrs.get("value")
    element = np.zeros(1, np.float32) if given is None else np.asarray(given).reshape(1)
    filled = rewriter.constant(element, f"{node.name}.element", result.dtype)
    expand = rewriter.insert("Expand", [filled, size], before=node, outputs=[result.name], name=node.name)
    if expand.output.shape != result.shape or not replaceable(rewriter.graph, result, expand.output):
        rewriter.erase_dead([expand])
        return False
    rewriter.replace(result, expand.output, "same")
    return True


def _read_through(node: Node, index: int) -> bool:
    operand = node.inputs[index]
    expand = None if operand is None else operand.producer
    if operand is None or expand is None or expand.op != "Expand" or node.output.shape is None:
        return False
    source = expand.inputs[0]
    if source is None or source.shape is None or source.format != operand.format or not operand.format.is_plain:
        return False
    others = [v for i, v in enumerate(node.inputs) if i != index and v is not None]
    if not _cover(node.output.shape, others):
        return False
    node.set_input(index, source)
    return True


def _cover(shape: tuple[Dim, ...], values: list[Value]) -> bool:
    """Whether each extent, aligned at the end, is that of one of the values."""
    return all(
        any(v.shape is not None and len(v.shape) >= back and v.shape[-back] == extent for v in values)
        for back, extent in enumerate(reversed(shape), start=1)
    )
