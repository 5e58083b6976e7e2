"""Shapes of tensors that meet: numpy broadcasting with symbolic dims."""

from __future__ import annotations

from graph_opt.ir.ops.registry import Inference, Shape


def broadcast(ctx: Inference, *shapes: Shape | None) -> Shape | None:
    """The shape that all broadcast to; None when one is not known. See `Inference.agreed` for symbolic extents."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(s) for s in known), default=0)
    aligned = [(1,) * (rank - len(s)) + s for s in known]
    return tuple(ctx.agreed((s[i] for s in aligned), broadcast=True) for i in range(rank))
