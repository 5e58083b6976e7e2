"""ConvInteger whose bytes no kernel multiplies becomes a float convolution of whole numbers, which is exact.

The weight, less its zero points, is a constant, so the greatest sum that bytes can make is known: where it stays below
2**24 the convolution runs in f32, else in f64. In either dtype every product and every partial sum is then a whole
number that the dtype holds, so the order of the additions does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graph_opt.ir.core import Graph, Node
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import Arithmetic, is_single, is_zero
from graph_opt.quantisation.fold_zero_points import takes_bytes
from tensor_types.dtypes import F32, F64, I32

_GREATEST_BYTE = 255


@dataclass(frozen=True)
class ExpandIntegerConvolutions:
    """See the module. A weight known only at run time leaves the node as it is."""

    name: ClassVar[str] = "expand-integer-convolutions"

    def apply(self, graph: Graph) -> bool:
        found = [node for node in graph.nodes if node.op == "ConvInteger" and not takes_bytes(node)]
        rewriter = Rewriter(graph)
        return any([_expand(rewriter, node) for node in found])


def _expand(rewriter: Rewriter, node: Node) -> bool:
    x, w, x_zero, w_zero = (*node.inputs, None, None)[:4]
    if x is None or w is None or w.data is None or x.shape is None or not is_single(x_zero):
        return False
    if w_zero is not None and w_zero.data is None:
        return False
    weight = w.data.astype(np.int64)
    if w_zero is not None and w_zero.data is not None:
        weight = weight - w_zero.data.astype(np.int64).reshape([-1] + [1] * (weight.ndim - 1))
    dtype = F32 if greatest_sum(weight) < 1 << 24 else F64
    do = Arithmetic(rewriter, node)
    data = do.cast(x, dtype)
    if x_zero is not None and not is_zero(x_zero):
        data = do("Sub", data, do.reshape(do.cast(x_zero, dtype), ()))
    total = do("Conv", data, do.constant(weight.astype(dtype.numpy), "weight"), **node.attrs)
    do.finish(do.cast(total, I32))
    return True


def greatest_sum(weight: np.ndarray) -> int:
    """Bound of every partial sum of a channel's products with bytes less their zero point.

    The factors lie in an interval of length 255 that holds 0: at worst all of one sign meet the weights of one sign.
    """
    channels = weight.reshape(weight.shape[0], -1)
    positive = np.maximum(channels, 0).sum(1)
    negative = np.maximum(-channels, 0).sum(1)
    return int(_GREATEST_BYTE * np.maximum(positive, negative).max(initial=0))
