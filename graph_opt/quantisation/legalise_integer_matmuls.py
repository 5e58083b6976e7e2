"""Gives integer matrix products a form that the targets have a kernel for, wherever the families name one.

1. A product that has a kernel as it is stays.
2. Zero points, one for all or one for each row of a and column of b, go into sums, which wraps as i32 does:
   (a - za) @ (b - zb) = a @ b - za * (sum over k of b) - zb * (sum over k of a - k * za).
3. Unsigned codes are read as codes less 128, which are signed bytes. Where b is a signed constant and no zero point is
   there, a @ b = (a - 128) @ b + 128 * (sum over k of b) adds one vector. Elsewhere zero points move along,
   a - za = (a - 128) - (za - 128), an absent one is -128 from now on, and rule 2 follows.
4. On hosts zero points of two tensors that the run makes become sums even where a kernel takes them: it would add up
   each operand again for every block of the other. Its b is signed, like a weight.
5. What has no kernel in any of these forms is left to lowering, which says why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_opt.fusion.families import Kernels
from graph_opt.ir.arithmetic import Arithmetic
from graph_opt.ir.core import Graph, Node, Value
from graph_opt.ir.rewriter import Rewriter
from graph_opt.quantisation.arithmetic import is_single, is_zero
from graph_opt.quantisation.signed_codes import MIDDLE, Signed, signed
from tensor_types.dtypes import I8, I32, U8


@dataclass(frozen=True)
class LegaliseIntegerMatmuls:
    """See the module."""

    kernels: Kernels
    name: str = "legalise-integer-matmuls"

    def apply(self, graph: Graph) -> bool:
        rewriter, made = Rewriter(graph), Signed()
        return any([self._legalised(rewriter, n, made) for n in list(graph.nodes) if n.op == "MatMulInteger"])

    def _legalised(self, rewriter: Rewriter, node: Node, made: Signed) -> bool:
        a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
        if a is None or b is None or a.shape is None or b.shape is None or node.output.shape is None:
            return False
        graph, shifted = rewriter.graph, not (is_zero(a_zero) and is_zero(b_zero))
        if min(a.rank, b.rank) < 2:
            return False
        count = a.shape[-1]
        if self._both_made(a, b) and shifted and isinstance(count, int):
            do = Arithmetic(rewriter, node)
            b, b_zero = _as_signed(do, b, b_zero, made)
            return _spread_zeros(do, a, b, a_zero, b_zero, count)
        if self.kernels.why_not_as(graph, node) is None:
            return False
        if shifted and isinstance(count, int) and self.kernels.why_not_as(graph, node, absent=(2, 3)) is None:
            return _spread_zeros(Arithmetic(rewriter, node), a, b, a_zero, b_zero, count)
        unsigned = dict.fromkeys([i for i, v in enumerate((a, b)) if v.dtype == U8], I8)
        if not unsigned or self.kernels.why_not_as(graph, node, dtypes=unsigned, absent=(2, 3)) is not None:
            return False
        do = Arithmetic(rewriter, node)
        if not shifted and list(unsigned) == [0] and b.data is not None:
            do.finish(do("Add", do("MatMulInteger", signed(do, a, made), b), _sums(do, b, -2, MIDDLE)))
            return True
        if not isinstance(count, int):
            return False
        (a, a_zero), (b, b_zero) = (_as_signed(do, v, z, made) for v, z in ((a, a_zero), (b, b_zero)))
        return _spread_zeros(do, a, b, a_zero, b_zero, count)

    def _both_made(self, a: Value, b: Value) -> bool:
        """True for a product of two tensors of bytes that the run makes, on hosts: neither is packed before."""
        hosts = all(t.kind == "host" for t in self.kernels.targets)
        return hosts and not a.is_constant and not b.is_constant


def _as_signed(do: Arithmetic, value: Value, zero: Value | None, made: Signed) -> tuple[Value, Value | None]:
    """An operand and its zero point, as signed bytes."""
    if value.dtype != U8:
        return value, zero
    return signed(do, value, made), do.number(-MIDDLE, I8) if zero is None else signed(do, zero, made)


def _spread_zeros(
    do: Arithmetic, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None, count: int
) -> bool:
    """The product of the codes less what their zero points add; `count` is k."""
    total = do("MatMulInteger", a, b)
    of_rows = None if is_zero(a_zero) else _wide(do, a_zero, rows=True)
    if of_rows is not None:
        total = do("Sub", total, do("Mul", of_rows, _sums(do, b, -2)))
    if not is_zero(b_zero):
        sums = _sums(do, a, -1)
        if of_rows is not None:
            sums = do("Sub", sums, do("Mul", of_rows, count))
        total = do("Sub", total, do("Mul", sums, _wide(do, b_zero, rows=False)))
    do.finish(total)
    return True


def _wide(do: Arithmetic, zero: Value | None, *, rows: bool) -> Value:
    """Zero points in i32 as they broadcast over the product."""
    assert zero is not None and zero.shape is not None
    wide = do.cast(zero, I32)
    if is_single(zero):
        return do.reshape(wide, ())
    return do.reshape(wide, (-1, 1)) if rows and zero.rank == 1 else wide


def _sums(do: Arithmetic, codes: Value, axis: int, factor: int = 1) -> Value:
    """The sums of an operand over k, which stays as an axis of 1; of a constant at convert time, times `factor`."""
    if codes.data is not None:
        sums = factor * codes.data.astype(np.int64).sum(axis, keepdims=True)
        return do.constant(sums.astype(np.int32), "sums")
    return do("ReduceSum", do.cast(codes, I32), do.constant(np.array([axis]), "axis"), keepdims=1)
