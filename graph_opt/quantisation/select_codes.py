"""Operators that only pick, reorder or compare elements work on the codes; DequantizeLinear follows them.

1. op(DequantizeLinear(x)) is DequantizeLinear(op(x)) for moves, Resize to the nearest element and MaxPool, where one
   positive scale and one zero point hold for all of x; Concat where they are the same for all operands.
2. QuantizeLinear(DequantizeLinear(x)) with equal parameters is x.
Bytes move in a quarter of the time, and a product behind finds its codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from tensor_types.dtypes import F32, I8, U8

_MOVES = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Expand", "Tile", "DepthToSpace",
     "SpaceToDepth"}
)  # fmt: skip
_BYTES = frozenset({I8, U8})


@dataclass(frozen=True)
class SelectCodes:
    """See the module."""

    name: ClassVar[str] = "select-codes"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_selected(rewriter, n) or _round_trip(rewriter, n) for n in list(graph.nodes)])


def _selected(rewriter: Rewriter, node: Node) -> bool:
    if node.op == "Concat":
        sources = [_dequantized(v) for v in node.inputs]
    elif node.op in _MOVES or _is_nearest(node) or (node.op == "MaxPool" and len(node.outputs) == 1):
        sources = [_dequantized(node.input(0))]
    else:
        return False
    found = [n for n in sources if n is not None]
    if not found or len(found) < len(sources) or any(not _alike(n, found[0]) for n in found):
        return False
    do = Arithmetic(rewriter, node)
    codes = [n.inputs[0] for n in found]
    moved = do(node.op, *codes, *node.inputs[len(codes) :], **node.attrs)
    moved.shape = node.output.shape  # which an operand may have told that was folded into it
    do.finish(do("DequantizeLinear", moved, *found[0].inputs[1:]))
    rewriter.erase_dead(found)
    return True


def _round_trip(rewriter: Rewriter, node: Node) -> bool:
    source = _dequantized(node.input(0)) if node.op == "QuantizeLinear" else None
    if source is None or not _alike(node, source) or source.inputs[0] is None:
        return False
    codes = source.inputs[0]
    if codes.dtype != node.output.dtype:
        return False
    rewriter.replace(node.output, codes)
    rewriter.erase_dead([node, source])
    return True


def _dequantized(value: Value | None) -> Node | None:
    """The DequantizeLinear that makes a value from bytes by one constant, positive scale and one zero point."""
    node = value.producer if value is not None else None
    if node is None or node.op != "DequantizeLinear" or node.output.dtype != F32:
        return None
    codes, scale, zero = (*node.inputs, None)[:3]
    if codes is None or codes.is_constant or codes.dtype not in _BYTES or scale is None:
        return None
    numbers = [v.data for v in (scale, zero) if v is not None]
    if any(n is None or n.size != 1 for n in numbers) or not float(np.reshape(numbers[0], ())) > 0:  # type: ignore[arg-type]
        return None
    return node


def _alike(one: Node, other: Node) -> bool:
    """True if both quantise with the same constants."""
    return _numbers(one.inputs[1:]) == _numbers(other.inputs[1:])


def _numbers(parameters: Sequence[Value | None]) -> tuple[float, ...] | None:
    scale, zero = (*parameters, None)[:2]
    if scale is None or scale.data is None or scale.data.size != 1 or scale.dtype != F32:
        return None
    if zero is not None and (zero.data is None or zero.data.size != 1):
        return None
    held = 0.0 if zero is None or zero.data is None else float(zero.data.reshape(()))
    return float(scale.data.reshape(())), held


def _is_nearest(node: Node) -> bool:
    return node.op == "Resize" and node.attrs.get("mode", "nearest") == "nearest"
