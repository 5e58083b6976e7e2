"""A product of dequantised operands becomes the integer one, scaled behind: DQ(a) @ DQ(b) = (a @ b - zeros) * scales.

1. a is 8-bit with one scale and zero point. b is an 8-bit constant, one zero point, one scale or one for each column
   of a MatMul, each output channel of a Conv; b of a MatMul may also be like a, with a known scale (attention).
2. The sum is exact in i32, which so many products of bytes cannot leave; it is converted to f32 and multiplied with
   the product of the scales, which is f32 too: onnxruntime's own kernels do the same.
3. A bias of i32 codes with the scale of the products is added to the sum, as their tools write it.
The multiplication, another bias and the QuantizeLinear that follows are an epilogue for the loop fusion to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single, is_zero
from tensor_types.dtypes import F32, I8, I32, U8

_BYTES = frozenset({I8, U8})
_MOST_PRODUCTS = (3 << 29) // 255**2
"""Of bytes less their zero points, each of 255 at most, that i32 adds without wrapping."""
_MOST_BIAS = 1 << 29
_SAME_SCALE = 1e-6
"""How far the scale of a bias may be off that of the products: rounding of f32, no more."""


@dataclass(frozen=True)
class FuseQdqProducts:
    """See the module."""

    name: ClassVar[str] = "fuse-qdq-products"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_fuse(rewriter, node) for node in list(graph.nodes) if node.op in ("MatMul", "Conv")])


def _fuse(rewriter: Rewriter, node: Node) -> bool:
    convolution = node.op == "Conv"
    left, right = (_dequantized(v) for v in node.inputs[:2])
    if node.output.dtype != F32 or left is None or right is None or not _is_scalar(left):
        return False
    rank = node.output.rank
    if not _is_weight(right, axis=0 if convolution else -1) and (convolution or not _is_tensor(right)):
        return False
    do = Arithmetic(rewriter, node)
    (a, a_scale, a_zero), (b, b_scale, b_zero) = ((*n.inputs, None)[:3] for n in (left, right))
    assert a_scale is not None and b_scale is not None and b_scale.data is not None
    zeros = [None if z is None else _scalar_zero(do, z) for z in (a_zero, b_zero)]
    total = do("ConvInteger" if convolution else "MatMulInteger", a, b, *zeros, **node.attrs)
    columns = np.asarray(b_scale.data, np.float32)
    columns = columns.reshape(()) if columns.size == 1 else columns.reshape(-1)
    if convolution and columns.size > 1:
        columns = columns.reshape(-1, *[1] * (rank - 2))
    if a_scale.data is not None:
        factor = do.constant(np.asarray(a_scale.data, np.float32).reshape(()) * columns, "scale")
    else:
        factor = do("Mul", do.reshape(a_scale, ()), do.constant(columns, "scale"))
    bias = node.input(2)
    codes = None if bias is None or factor.data is None else _bias_codes(bias, factor.data)
    if codes is not None:
        total, bias = do("Add", total, do.reshape(codes, [-1, *[1] * (rank - 2)])), None
    result = do("Mul", do.cast(total, F32), factor)
    if bias is not None:
        result = do("Add", result, do.reshape(bias, [-1, *[1] * (rank - 2)]))
    do.finish(result)
    return True


def _bias_codes(bias: Value, factor: np.ndarray) -> Value | None:
    """The i32 codes of a constant bias whose scale is that of the products: they add to the sums as they are."""
    node = bias.producer
    if node is None or node.op != "DequantizeLinear" or node.attrs.get("block_size"):
        return None
    codes, scale, zero = (*node.inputs, None)[:3]
    if codes is None or codes.dtype != I32 or codes.data is None or scale is None or scale.data is None:
        return None
    if not is_zero(zero) or codes.rank != 1 or scale.data.size not in (1, factor.size):
        return None
    same = np.allclose(scale.data.reshape(-1), factor.reshape(-1), rtol=_SAME_SCALE, atol=0)
    return codes if same and np.abs(codes.data.astype(np.int64)).max(initial=0) < _MOST_BIAS else None


def _dequantized(value: Value | None) -> Node | None:
    """The DequantizeLinear that makes the value, if its codes are bytes and its scale is f32."""
    node = value.producer if value is not None else None
    if node is None or node.op != "DequantizeLinear" or node.attrs.get("block_size"):
        return None
    codes, scale = node.input(0), node.input(1)
    fits = codes is not None and codes.dtype in _BYTES and codes.shape is not None and len(codes.shape) >= 2
    return node if fits and scale is not None and scale.dtype == F32 else None


def _is_scalar(node: Node) -> bool:
    return all(is_single(v) for v in node.inputs[1:])


def _is_tensor(node: Node) -> bool:
    """True for codes that the run makes, with one known scale, of which i32 adds the products."""
    codes, scale = node.inputs[:2]
    assert codes is not None and scale is not None
    k = None if codes.shape is None else codes.shape[-2]
    made = codes.recipe is None and scale.data is not None and _is_scalar(node)
    return made and isinstance(k, int) and k <= _MOST_PRODUCTS


def _is_weight(node: Node, axis: int) -> bool:
    """True for a constant with one zero point whose scales are one number, or lie along the axis of the results."""
    codes, scale, zero = (*node.inputs, None)[:3]
    assert codes is not None and scale is not None
    if codes.data is None or scale.data is None or (zero is not None and zero.data is None):
        return False
    if zero is not None and zero.data is not None and (zero.data != zero.data.flat[0]).any():
        return False
    along = int(node.attrs.get("axis", 1)) % codes.rank  # type: ignore[arg-type]
    n_products = int(np.prod(codes.data.shape[1:])) if axis == 0 else codes.data.shape[-2]
    return n_products <= _MOST_PRODUCTS and (scale.data.size == 1 or along == axis % codes.rank)


def _scalar_zero(do: Arithmetic, zero: Value) -> Value:
    if zero.data is None:
        return do.reshape(zero, ())
    return do.constant(np.asarray(zero.data.flat[0], zero.data.dtype), "zero")
