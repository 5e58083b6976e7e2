"""Moves DequantizeLinear of a constant behind what only picks or reorders its elements.

1. Gather(DequantizeLinear(table)) gathers codes: a table is read, never converted as a whole. Scales along another axis
   move with it; where each row that is gathered has its own, they are gathered too and multiplied.
2. Transpose(DequantizeLinear(w)) is DequantizeLinear of the transposed constant, whose axis moves along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single
from tensor_types.dtypes import F32
from tensor_types.recipes import permute, reshape


@dataclass(frozen=True)
class DequantizeLate:
    """See the module."""

    name: ClassVar[str] = "dequantize-late"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_late(rewriter, node) for node in list(graph.nodes) if node.op in ("Gather", "Transpose")])


def _late(rewriter: Rewriter, node: Node) -> bool:
    source = node.input(0)
    origin = source.producer if source is not None else None
    if origin is None or origin.op != "DequantizeLinear" or origin.attrs.get("block_size"):
        return False
    codes = origin.inputs[0]
    if codes is None or codes.recipe is None:
        return False
    along = int(origin.attrs.get("axis", 1)) % max(codes.rank, 1)  # type: ignore[call-overload]
    scales = None if all(is_single(v) for v in origin.inputs[1:]) else along
    if node.op == "Transpose":
        order = _order(node, codes.rank)
        moved = rewriter.constant(permute(codes.recipe, order), f"{codes.name}/transposed")
        return _dequantise(rewriter, node, origin, moved, 0 if scales is None else order.index(scales))
    indices, axis = node.inputs[1], int(node.attrs.get("axis", 0)) % codes.rank  # type: ignore[call-overload]
    if indices is None or indices.shape is None:
        return False
    if scales == axis:
        return _scaled_rows(rewriter, node, origin, codes)
    moved = rewriter.insert("Gather", [codes, indices], node.attrs, before=node, name=node.name).output
    return _dequantise(rewriter, node, origin, moved, (scales or 0) + (indices.rank - 1 if (scales or 0) > axis else 0))


def _dequantise(rewriter: Rewriter, node: Node, origin: Node, codes: Value, axis: int) -> bool:
    """DequantizeLinear of the moved codes, whose scales lie along `axis`, takes the place of the node."""
    operands, attrs = [codes, *origin.inputs[1:]], {**origin.attrs, "axis": axis}
    late = rewriter.insert("DequantizeLinear", operands, attrs, before=node, name=f"{node.name}/dequantize")
    rewriter.replace(node.output, late.output)
    rewriter.erase_dead([node])
    return True


def _scaled_rows(rewriter: Rewriter, node: Node, origin: Node, codes: Value) -> bool:
    """(codes - zeros) * scales of what is gathered, where each index has its own."""
    indices, axis = node.inputs[1], int(node.attrs.get("axis", 0)) % codes.rank  # type: ignore[call-overload]
    scale, zero = (*origin.inputs, None)[1:3]
    if node.output.dtype != F32 or any(v is not None and v.recipe is None for v in (scale, zero)):
        return False
    do = Arithmetic(rewriter, node)

    def gathered(parameter: Value | None) -> Value:
        """Those of the indices, seen with the axes of the codes behind it."""
        assert parameter is not None and parameter.recipe is not None
        column = (parameter.recipe.size, *[1] * (codes.rank - 1 - axis))
        return do("Gather", rewriter.constant(reshape(parameter.recipe, column), f"{parameter.name}/rows"), indices)

    number = do.cast(do("Gather", codes, indices, axis=axis), F32)
    if zero is not None:
        number = do("Sub", number, do.cast(gathered(zero), F32))
    do.finish(do("Mul", number, gathered(scale)))
    return True


def _order(node: Node, rank: int) -> list[int]:
    perm = node.attrs.get("perm")
    return [int(a) for a in perm] if perm else list(reversed(range(rank)))  # type: ignore[union-attr]
