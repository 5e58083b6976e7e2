"""Zero points of integer matrix products with a constant weight become constants, so that no run sums up the weight.

1. A zero point of b moves into b where the shifted codes are bytes still: u8 about 128 is i8 about 0. Where they are
   not, half of the range moves, so that b is i8 in any case, and the rest r of the zero point stays.
2. (a - za) @ (b - r) = a @ b - za * (sum over k of b - r) - r * (sum over k of a). The sums of b are known: one vector
   over the columns. Those of a are made once, not in every block of the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single, is_zero
from tensor_types.dtypes import I32


@dataclass(frozen=True)
class FoldZeroPoints:
    """See the module. Products of run-time operands keep their zero points."""

    name: ClassVar[str] = "fold-zero-points"

    def apply(self, graph: Graph) -> bool:
        rewriter = Rewriter(graph)
        return any([_fold(rewriter, node) for node in list(graph.nodes) if node.op == "MatMulInteger"])


def centred(data: np.ndarray, zero: Value | None, axis: int) -> np.ndarray:
    """The codes less their zero points, in i16: one, a vector along the axis, or what broadcasts by itself."""
    codes = data.astype(np.int16)
    if zero is None or zero.data is None:
        return codes
    zeros = zero.data.astype(np.int16)
    if zeros.size == 1 or zeros.ndim == 1:
        zeros = zeros.reshape(() if zeros.size == 1 else [-1 if i == axis else 1 for i in range(codes.ndim)])
    return codes - zeros


def _fold(rewriter: Rewriter, node: Node) -> bool:
    a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
    if a is None or b is None or b.data is None or b.data.ndim < 2 or node.output.shape is None:
        return False
    if (a_zero is None and b_zero is None) or not is_single(a_zero) or (b_zero is not None and b_zero.data is None):
        return False
    codes = centred(b.data, b_zero, b.data.ndim - 1)
    do = Arithmetic(rewriter, node)
    weight, rest = stored(b.data, codes)
    total = do("MatMulInteger", a, b if is_zero(b_zero) else do.constant(weight, "weight"))
    if a_zero is not None and not is_zero(a_zero):
        sums = codes.sum(-2, keepdims=codes.ndim > 2)
        if a_zero.data is not None:
            shift = do.constant((sums * int(a_zero.data.reshape(()))).astype(np.int32), "shift")
        else:
            shift = do("Mul", do.constant(sums.astype(np.int32), "sums"), do.reshape(do.cast(a_zero, I32), ()))
        total = do("Sub", total, shift)
    if rest.any():
        of_rows = do("ReduceSum", do.cast(a, I32), do.constant(np.array([-1]), "axis"), keepdims=1)
        total = do("Sub", total, do("Mul", of_rows, do.constant(rest.astype(np.int32), "rest")))
    do.finish(total)
    return True


def stored(data: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bytes, rest): the codes are the bytes less the rest, which is 0 wherever bytes hold the codes themselves."""
    least, greatest = (int(codes.min()), int(codes.max())) if codes.size else (0, 0)
    if least >= -128 and greatest <= 127:
        return codes.astype(np.int8), np.zeros((), np.int64)
    if least >= 0 and greatest <= 255:
        return codes.astype(np.uint8), np.zeros((), np.int64)
    middle = 128 if data.dtype == np.uint8 else 0
    stored = data.astype(np.int16) - middle
    rest = (stored - codes).max(-2, keepdims=codes.ndim > 2)
    return stored.astype(np.int8), rest.reshape(-1)[:1].reshape(()) if (rest == rest.flat[0]).all() else rest
