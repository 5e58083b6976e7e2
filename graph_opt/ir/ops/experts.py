"""Operators of routed experts, which only the compiler makes: rows sorted by expert, products with a matrix for each.

A *choice* is one element of the router's indices [.., k]: choice c belongs to token c // k, tokens counted over all
leading axes. Each choice gets one *row*; rows are sorted by expert, those of one expert by choice. So the number of
rows is that of choices, whatever the router decides.
"""

from __future__ import annotations

from graph_opt.ir.ops.registry import INT, Inference, declare
from tensor_types.dims import product
from tensor_types.dtypes import I64
from tensor_types.dtypes import dtype as dtype_of


def _route(ctx: Inference) -> None:
    """offsets [experts + 1]: expert e has rows offsets[e] .. offsets[e + 1] - 1; choices and tokens [rows]: of each
    row; rows, like the indices: of each choice. All are i64; an index outside 0 .. experts - 1 is an error."""
    indices, experts = ctx.shape(), int(ctx.attr("experts"))
    if ctx.dtype() != I64 or experts < 1:
        raise ctx.error("takes i64 indices and at least one expert")
    count = None if indices is None else (product(indices),)
    if indices == ():
        raise ctx.error("indices have an axis of choices")
    ctx.set(0, I64, (experts + 1,))
    ctx.set(1, I64, count)
    ctx.set(2, I64, count)
    ctx.set(3, I64, indices)


def _grouped_matmul(ctx: Inference) -> None:
    """X [rows, K] by W [groups, K, N] gives [rows, N]: row r is multiplied by the matrix of its group, offsets as of
    MoeRoute. `result_dtype` names the dtype of the result where it is not that of X."""
    wanted = str(ctx.attr("result_dtype"))
    result = dtype_of(wanted) if wanted else ctx.dtype()
    x, w, offsets = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if x is None or w is None:
        return ctx.set(0, result, None)
    if len(x) != 2 or len(w) != 3 or ctx.dtype(0) != ctx.dtype(1) or ctx.dtype(2) != I64:
        raise ctx.error("multiplies rows [rows, K] by matrices [groups, K, N] of one dtype, offsets are i64")
    if offsets is not None and offsets != (w[0] + 1,):
        raise ctx.error(f"offsets {list(offsets)} of {w[0]} groups")
    ctx.agreed((x[1], w[1]))
    ctx.set(0, result, (x[0], w[2]))


declare("MoeRoute", "indices", "movement", _route, {"experts": INT})
declare("GroupedMatMul", "X W offsets", "cube", _grouped_matmul, {"result_dtype": ""})
