"""Walks through decision trees, which only the compiler makes of the ensembles of ai.onnx.ml.

A walk stands on a record. Record r is `left << shift | column` in `records`; where the row's `column` is at most
`thresholds[r]` the walk goes on to `left`, else to `left + 1`. A leaf leads to itself. Columns are the first `features`
of the row with NaN as +inf, then the same with NaN as -inf.
"""

from __future__ import annotations

from graph_opt.ir.ops.registry import INT, Inference, declare
from tensor_types.dtypes import F32, F64


def _trees(ctx: Inference) -> None:
    """X f32 or f64 [rows, width]; records i32 or i64 [n]; thresholds [n] and weights [n, 1 or results] of the dtype of
    X; roots i64 [blocks, b], depths and targets i64 [blocks]: the walks of a block take `depths` steps, `depth` at
    most, and weights [n, 1] count for its target. Result [rows, results]: sum, least or largest of the weights, as
    `aggregate` says."""
    shape, weights = ctx.shape(), ctx.shape(3)
    if ctx.dtype() not in (F32, F64) or (shape is not None and len(shape) != 2):
        raise ctx.error("takes rows of f32 or f64")
    if weights is not None and weights[1] not in (1, ctx.attr("results")):
        raise ctx.error("weights have one column, or one for each result")
    ctx.set(0, ctx.dtype(), None if shape is None else (shape[0], int(ctx.attr("results"))))


declare(
    "Trees", "X records thresholds weights roots depths targets", "movement", _trees,
    {"shift": INT, "features": INT, "results": INT, "depth": INT, "aggregate": "SUM"},
)  # fmt: skip
