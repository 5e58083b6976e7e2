"""Gives a chip whose cube multiplies signed bytes alone its integer products of unsigned ones.

1. An operand of unsigned codes is read as codes less 128, which are signed bytes: made once for all products of a
   value, or at convert time of a constant.
2. a @ b = (a - 128) @ b + 128 * (sum over k of b): where b is a constant without a zero point its sums are one vector.
   Elsewhere the zero point moves along: a - za = (a - 128) - (za - 128), and an absent one is -128 from now on.
3. A convolution likewise; what lies outside of the input counts as `pad_value`, which moves along, so that the sums of
   the weight stand for every window. One whose zero points are not folded is left to lowering, which says why.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import Arithmetic, is_zero
from tensor_types.dtypes import I8, I32, U8

_MIDDLE = 128


@dataclass(frozen=True)
class SignBytes:
    """See the module. `cube` are the names of the dtypes that the cube multiplies."""

    cube: Collection[str]
    name: str = "sign-bytes"

    def apply(self, graph: Graph) -> bool:
        if U8.name in self.cube or I8.name not in self.cube:
            return False
        signed: dict[Value, Value] = {}
        rewrite = {"MatMulInteger": _sign_matmul, "ConvInteger": _sign_convolution}
        rewriter = Rewriter(graph)
        return any([rewrite[n.op](rewriter, n, signed) for n in list(graph.nodes) if n.op in rewrite])


def _sign_matmul(rewriter: Rewriter, node: Node, made: dict[Value, Value]) -> bool:
    a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
    if a is None or b is None or U8 not in (a.dtype, b.dtype) or node.output.shape is None:
        return False
    do = Arithmetic(rewriter, node)
    no_zeros = is_zero(a_zero) and is_zero(b_zero)
    if no_zeros and a.dtype == U8 and b.dtype == I8 and b.data is not None and b.data.ndim > 1:
        total = do("MatMulInteger", _signed(do, a, made), b)
        sums = b.data.astype(np.int64).sum(-2, keepdims=b.data.ndim > 2)
        do.finish(do("Add", total, do.constant((_MIDDLE * sums).astype(np.int32), "middle")))
        return True
    operands, zeros = [], []
    for value, zero in ((a, a_zero), (b, b_zero)):
        unsigned = value.dtype == U8
        operands.append(_signed(do, value, made) if unsigned else value)
        zeros.append(_moved(do, zero, made) if unsigned else zero)
    do.finish(do("MatMulInteger", *operands, *zeros, **node.attrs))
    return True


def _sign_convolution(rewriter: Rewriter, node: Node, made: dict[Value, Value]) -> bool:
    x, w, *zeros = node.inputs
    if x is None or w is None or x.dtype != U8 or w.dtype != I8 or w.data is None:
        return False
    if node.output.shape is None or any(z is not None for z in zeros):
        return False
    do = Arithmetic(rewriter, node)
    pad = int(node.attrs.get("pad_value", 0) or 0)  # type: ignore[call-overload]
    total = do("ConvInteger", _signed(do, x, made), w, **{**node.attrs, "pad_value": pad - _MIDDLE})
    sums = w.data.astype(np.int64).reshape(w.data.shape[0], -1).sum(1).reshape(-1, *[1] * (w.data.ndim - 2))
    do.finish(do("Add", total, do.constant((_MIDDLE * sums).astype(np.int32), "middle")))
    return True


def _signed(do: Arithmetic, value: Value, made: dict[Value, Value]) -> Value:
    """The codes less 128, as i8."""
    if value not in made:
        if value.data is not None:
            made[value] = do.constant((value.data.astype(np.int16) - _MIDDLE).astype(np.int8), "signed")
        else:
            # By way of i32, which is how vector units narrow.
            made[value] = do.cast(do("Sub", do.cast(value, I32), _MIDDLE), I8)
    return made[value]


def _moved(do: Arithmetic, zero: Value | None, made: dict[Value, Value]) -> Value:
    return do.number(-_MIDDLE, I8) if zero is None else _signed(do, zero, made)
