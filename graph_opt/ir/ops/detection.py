"""NonMaxSuppression in two steps, which only the compiler makes: a table of fixed size, then as many rows as there are.

    chosen[b, c, :] = the boxes kept of class c of image b, best first, then -1        SelectBoxes
    rows[i, :]      = (b, c, box) of the chosen ones in order                          SelectedBoxes
"""

from __future__ import annotations

from graph_opt.ir.ops.registry import INT, Inference, declare
from tensor_types.dims import dmin, product
from tensor_types.dtypes import I64


def _select(ctx: Inference) -> None:
    """boxes f32 [B, N, 4], scores f32 [B, C, N], overlap and least score f32 of one element: i64 [B, C, places]."""
    scores = ctx.shape(1)
    most = int(ctx.attr("most"))
    ctx.set(0, I64, None if scores is None else (*scores[:2], dmin(scores[2], most)))


def _selected(ctx: Inference) -> None:
    places = None if ctx.shape() is None else product(ctx.shape())
    ctx.set(0, I64, (ctx.fresh(places if isinstance(places, int) else None), 3))


declare("SelectBoxes", "boxes scores overlap? least?", "movement", _select, {"most": INT, "center": 0})
declare("SelectedBoxes", "chosen", "aicpu", _selected)
