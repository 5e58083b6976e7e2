"""QLinearMatMul and QLinearConv become the integer product, the bias in i32, and the requantisation to the output.

The factor of the sum is one f32 number per tensor or output channel, scale_a * scale_b / scale_y, as in onnxruntime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import CODES, QuantisedArithmetic, is_single
from tensor_types.dtypes import F32


@dataclass(frozen=True)
class ExpandQLinear:
    """See the module. Scales must be constant."""

    name: ClassVar[str] = "expand-qlinear"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_expand(rewriter, n) for n in list(graph.nodes) if n.op in ("QLinearMatMul", "QLinearConv")])


def _expand(rewriter: Rewriter, node: Node) -> bool:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
    bias = node.input(8)
    scales = [v.data if v is not None else None for v in (a_scale, b_scale, y_scale)]
    if any(s is None or s.dtype != np.float32 for s in scales) or node.output.shape is None:
        return False
    if not all(is_single(v) for v in (a_scale, a_zero, y_scale, y_zero)) or node.output.dtype not in CODES:
        return False
    left, right, result = (np.asarray(s, np.float32) for s in scales)
    convolution = node.op == "QLinearConv"
    if b_zero is not None and not is_single(b_zero) and b_zero.data is None:
        return False
    factor = left.reshape(()) * right.reshape(-1) / result.reshape(())
    if factor.size == 1:
        factor = factor.reshape(())
    elif convolution:
        factor = factor.reshape(_column(node.output))
    elif right.ndim > 1:
        return False
    do = QuantisedArithmetic(rewriter, node)
    total = do("ConvInteger" if convolution else "MatMulInteger", a, b, a_zero, b_zero, **node.attrs)
    if bias is not None:
        total = do("Add", total, do.reshape(bias, _column(node.output)))
    ratio = do("Mul", do.cast(total, F32), do.constant(factor, "scale"))
    zero = None if y_zero is None else do.reshape(do.cast(y_zero, F32), ())
    do.finish(do.quantized(ratio, zero, node.output.dtype))
    return True


def _column(value: Value) -> list[int]:
    """Shape of a vector over axis 1."""
    return [-1] + [1] * (value.rank - 2)
