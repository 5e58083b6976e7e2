"""What is known of float vectors while code is emitted: between which numbers their lanes lie, and whether any is NaN.

Conversions to integers saturate and give 0 for NaN; what is known to need neither is one instruction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Lanes that are no NaN lie between the two; `numbers` says that none is NaN."""

    least: float = -math.inf
    greatest: float = math.inf
    numbers: bool = False


ANYTHING = Range()
_SAFE = 2.0**100
"""Magnitudes below which sums and products of two stay finite, so that no NaN arises."""


def of_operation(op: str, a: Range, b: Range) -> Range:
    """Of TMAX, TMIN, TADD, TSUB or TMUL of two such vectors in f32 or f64; of others nothing is known."""
    numbers = a.numbers and b.numbers
    if op in ("TMAX", "TMIN"):
        best = max if op == "TMAX" else min
        return Range(best(a.least, b.least), best(a.greatest, b.greatest), numbers)
    corners = [*_corners(a), *_corners(b)]
    if not numbers or max(map(abs, corners)) > _SAFE or op not in ("TADD", "TSUB", "TMUL"):
        return ANYTHING
    if op == "TADD":
        return _rounded([a.least + b.least, a.greatest + b.greatest])
    if op == "TSUB":
        return _rounded([a.least - b.greatest, a.greatest - b.least])
    return _rounded([x * y for x in _corners(a) for y in _corners(b)])


def _corners(r: Range) -> tuple[float, float]:
    return r.least, r.greatest


def _rounded(results: Sequence[float]) -> Range:
    """With what f32 may add in rounding."""
    room = max(map(abs, results)) * 2.0**-23
    return Range(min(results) - room, max(results) + room, True)
