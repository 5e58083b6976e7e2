"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear become element-wise operators, which fuse like others.

1. Per tensor or per axis, constant or computed parameters; 8- and 16-bit codes, and i32 without a zero point.
2. Arithmetic is f32, as onnxruntime's: x / scale rounded to even, plus the zero point, saturated; (q - zero) * scale.
   Where x is a sum of scaled codes, constants are divided at convert time instead, and a Relu joins the saturation.
3. Blocks, 4-bit and f8 codes stay as they are.
4. DynamicQuantizeLinear: least and greatest element with 0 give scale and zero point. If all is 0 the scale is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import CODES, QuantisedArithmetic, is_zero
from graph_opt.quantisation.rescaling import rescaled
from tensor_types.dtypes import BF16, F16, F32, I32, U8

_FLOATS = frozenset({F32, F16, BF16})


@dataclass(frozen=True)
class ExpandQuantisation:
    """See the module."""

    name: ClassVar[str] = "expand-quantisation"

    def apply(self, graph: Graph) -> bool:
        changed = False
        rewriter = Rewriter(graph)
        for node in list(graph.nodes):
            expand = {
                "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic,
            }.get(node.op)  # fmt: skip
            changed |= expand is not None and expand(rewriter, node)
        return changed


def _parameters(node: Node) -> tuple[Value, Value, Value | None] | None:
    """(x, scale, zero point), if one number or one vector says how to quantise."""
    x, scale, zero = node.input(0), node.input(1), node.input(2)
    if x is None or scale is None or x.shape is None or node.attrs.get("block_size"):
        return None
    for value in (scale, zero):
        if value is None:
            continue
        single = value.shape is not None and all(d == 1 for d in value.shape)
        if not single and (value.shape is None or len(value.shape) != 1 or not x.rank):
            return None
    return (x, scale, zero) if scale.dtype in _FLOATS else None


def _quantize(rewriter: Rewriter, node: Node) -> bool:
    parameters, dtype = _parameters(node), node.output.dtype
    if parameters is None or dtype not in CODES or node.attrs.get("precision") not in (None, 0, F32.onnx):
        return False
    x, scale, zero = parameters
    if x.dtype not in _FLOATS | {I32} or x.is_constant:
        return False
    do = QuantisedArithmetic(rewriter, node)
    axis = int(node.attrs.get("axis", 1))  # type: ignore[arg-type]
    least = -math.inf
    if x.producer is not None and x.producer.op == "Relu" and len(x.uses) == 1:
        positive = x.producer.inputs[0]
        ratio = None if positive is None else rescaled(do, positive, scale)
        least = 0.0
    else:
        ratio = rescaled(do, x, scale)
    if ratio is None:
        ratio, least = do("Div", do.cast(x, F32), do.parameter(scale, F32, x.rank, axis)), -math.inf
    do.finish(do.quantized(ratio, None if zero is None else do.parameter(zero, F32, x.rank, axis), dtype, least))
    return True


def _dequantize(rewriter: Rewriter, node: Node) -> bool:
    parameters, dtype = _parameters(node), node.output.dtype
    if parameters is None or dtype not in _FLOATS:
        return False
    x, scale, zero = parameters
    if x.is_constant or not (x.dtype in CODES or (x.dtype == I32 and is_zero(zero))):
        return False
    do = QuantisedArithmetic(rewriter, node)
    axis = int(node.attrs.get("axis", 1))  # type: ignore[arg-type]
    whole = do.cast(x, F32)
    if zero is not None and not is_zero(zero):
        whole = do("Sub", whole, do.parameter(zero, F32, x.rank, axis))
    do.finish(do.cast(do("Mul", whole, do.parameter(scale, F32, x.rank, axis)), dtype))
    return True


def _dynamic(rewriter: Rewriter, node: Node) -> bool:
    x = node.input(0)
    if x is None or x.shape is None or x.dtype != F32 or x.is_constant or not x.rank:
        return False
    do = QuantisedArithmetic(rewriter, node)
    # Reduced axes are kept, so that a channels-last tensor is reduced as it lies.
    low = do("Min", do.reshape(do("ReduceMin", x, keepdims=1), ()), 0.0)
    high = do("Max", do.reshape(do("ReduceMax", x, keepdims=1), ()), 0.0)
    step = do("Div", do("Sub", high, low), 255.0)
    scale = do("Where", do("Equal", high, low), do.number(1.0, F32), step)
    centre = do("Round", do("Clip", do("Neg", do("Div", low, scale)), 0.0, 255.0))
    zero = do("Cast", centre, to=U8.onnx)
    codes = do.quantized(do("Div", x, scale), centre, U8)
    for old, new in zip(node.outputs, (codes, scale, zero), strict=False):
        do.rewriter.replace(old, new)
    rewriter.erase_dead([node])
    return True
