"""Shapes of tensors that meet: numpy broadcasting with symbolic dims."""

from __future__ import annotations

from graph_opt.ir.ops.registry import Inference, Shape, listed
from tensor_types.dims import Dim


def broadcast(ctx: Inference, *shapes: Shape | None) -> Shape | None:
    """The shape that all broadcast to; None when one is not known. See `Inference.agreed` for symbolic extents."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(s) for s in known), default=0)
    aligned = [(1,) * (rank - len(s)) + s for s in known]

    def agreed(axis: int) -> Dim:
        return ctx.agreed(
            (s[axis] for s in aligned), broadcast=True,
            of=lambda: f"axis {axis - rank} of {' and '.join(map(listed, known))}",
        )  # fmt: skip

    return tuple(map(agreed, range(rank)))
