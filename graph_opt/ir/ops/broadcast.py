"""Shapes of tensors that meet: numpy broadcasting with symbolic dims."""

from __future__ import annotations

from collections.abc import Iterable

from graph_opt.ir.ops.registry import Shape
from tensor_types.dims import Dim, dmax


def broadcast_dim(dims: Iterable[Dim]) -> Dim:
    """The common extent of aligned axes. ValueError when two numbers other than 1 differ.

    A number other than 1 decides; different symbolic extents give their maximum, right whenever the run is valid.
    """
    kept = [d for d in dict.fromkeys(dims) if d != 1]
    numbers = [d for d in kept if isinstance(d, int)]
    if len(numbers) > 1:
        raise ValueError(f"extents {numbers[0]} and {numbers[1]} do not broadcast")
    if numbers:
        return numbers[0]
    return dmax(*kept) if kept else 1


def broadcast(*shapes: Shape | None) -> Shape | None:
    """The shape that all broadcast to; None when one is not known."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max((len(s) for s in known), default=0)
    aligned = [(1,) * (rank - len(s)) + s for s in known]
    return tuple(broadcast_dim(s[i] for s in aligned) for i in range(rank))
